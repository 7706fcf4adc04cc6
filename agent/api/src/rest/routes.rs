//! Every route of the box's own REST, with what it takes and every answer that it may give. The router, the OpenAPI
//! document and the table of `agent/src/rest/README.md` come from this list: a new route is an entry here, and its
//! handler.

use std::fmt::Write as _;

use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::{BoxStatus, Claim, Claimed, Health, Problem, SiteReport, Taken, Timeline};
use crate::clusters::provisioning::{ClusterList, ClusterStory};
use crate::host_story::{HostList, HostStory};
use crate::rehearsal::Rehearsal;
use crate::site::MOST_BYTES;

/// HTTP method.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Method {
    /// Reads.
    Get,
    /// Does something.
    Post,
    /// Replaces.
    Put,
}

impl Method {
    /// As HTTP writes it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// Who is let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    Anybody,
    /// Whoever sends the token.
    Token,
}

/// How long a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// The answer begins within half a minute.
    Soon,
    /// As long as the sender needs, or those who are asked.
    Slow,
}

/// What a body holds.
#[derive(Clone, Copy, Debug)]
pub enum Body {
    /// Nothing.
    Empty,
    /// JSON of a type.
    Json(fn(&mut SchemaGenerator) -> Schema),
    /// Anything else, by its media type.
    Other(&'static str),
}

/// What a request brings.
#[derive(Clone, Copy, Debug)]
pub struct Takes {
    /// Its body.
    pub body: Body,
    /// What it is, one line.
    pub what: &'static str,
    /// Most bytes; none where it is read while it comes.
    pub most_bytes: Option<usize>,
}

/// A part of the query, which is never needed.
#[derive(Clone, Copy, Debug)]
pub struct Parameter {
    /// Name.
    pub name: &'static str,
    /// An example, for the table.
    pub example: &'static str,
    /// What it does.
    pub what: &'static str,
    /// Type of its value.
    pub schema: fn(&mut SchemaGenerator) -> Schema,
}

/// One answer.
#[derive(Clone, Copy, Debug)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// What comes with it.
    pub body: Body,
    /// When.
    pub when: &'static str,
}

/// A route.
#[derive(Clone, Copy, Debug)]
pub struct Route {
    /// Method.
    pub method: Method,
    /// Path, with placeholders in braces.
    pub path: &'static str,
    /// Who is let in.
    pub who: Who,
    /// How long it may take.
    pub pace: Pace,
    /// Parts of the query.
    pub query: &'static [Parameter],
    /// What the request brings.
    pub takes: Option<Takes>,
    /// Its own answers; [`Operation::answers`] has those of the door, too.
    pub answers: &'static [Answer],
}

/// Path below which everything but the claim asks for the token.
pub const API: &str = "/api/v1";
/// Most bytes of a body, where a route says nothing else.
pub const BODY_BYTES: usize = 16 * 1024;
/// Most bytes of manifests to rehearse: a thousand hosts with their inventories, as `kubectl get -o yaml` prints them.
pub const REHEARSAL_BYTES: usize = 16 << 20;

/// A GET for whoever has the token.
const GET: Route =
    Route { method: Method::Get, path: "", who: Who::Token, pace: Pace::Soon, query: &[], takes: None, answers: &[] };

fn schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

const fn json<T: JsonSchema>(status: u16, when: &'static str) -> Answer {
    Answer { status, body: Body::Json(schema::<T>), when }
}

const fn other(media: &'static str, when: &'static str) -> Answer {
    Answer { status: 200, body: Body::Other(media), when }
}

const fn problem(status: u16, when: &'static str) -> Answer {
    json::<Problem>(status, when)
}

/// A body in YAML.
const fn yaml(what: &'static str, most_bytes: usize) -> Takes {
    Takes { body: Body::Other("application/yaml"), what, most_bytes: Some(most_bytes) }
}

const NO_TOKEN: [Answer; 3] = [
    problem(401, "no token, or a wrong one"),
    problem(429, "too many wrong tokens from this address"),
    problem(503, "the box has not read its Site yet"),
];
const LATE: Answer = problem(503, "no answer in time");
const TOO_LONG: Answer = problem(413, "the body is too long");
const DISK: Answer = problem(500, "the box's disk failed");

macro_rules! operations {
    ($($id:ident = $summary:literal, $route:expr;)*) => {
        /// What a client does.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Operation {
            $(#[doc = $summary] $id,)*
        }

        impl Operation {
            /// All of them, in the order in which they are listed.
            pub const ALL: &[Self] = &[$(Self::$id),*];

            /// One line for readers.
            pub const fn summary(self) -> &'static str {
                match self { $(Self::$id => $summary,)* }
            }

            /// Its route.
            pub const fn route(self) -> &'static Route {
                match self { $(Self::$id => { const ROUTE: &Route = &$route; ROUTE })* }
            }
        }
    };
}

operations! {
    Page = "The web page", Route {
        path: "/",
        who: Who::Anybody,
        answers: &[other("text/html", "the page, one file")],
        ..GET
    };
    Health = "Whether the agent answers, and the box is ready", Route {
        path: "/healthz",
        who: Who::Anybody,
        answers: &[json::<Health>(200, "now")],
        ..GET
    };
    Authority = "The authority that signs the box's certificates", Route {
        path: "/ca.crt",
        who: Who::Anybody,
        answers: &[other("application/x-x509-ca-cert", "in PEM")],
        ..GET
    };
    Document = "These routes as an OpenAPI document", Route {
        path: "/openapi.json",
        answers: &[other("application/json", "OpenAPI 3.1")],
        ..GET
    };
    Claim = "Give a new box its first token", Route {
        method: Method::Post,
        path: "/api/v1/claim",
        who: Who::Anybody,
        takes: Some(Takes { body: Body::Json(schema::<Claim>), what: "the code", most_bytes: Some(BODY_BYTES) }),
        answers: &[
            json::<Claimed>(200, "claimed; the token, unless the caller brought its hash"),
            problem(400, "not JSON, or `tokenSha256` is not the SHA-256 of a token"),
            problem(403, "the code is wrong"),
            problem(409, "the box has its access already, or has not read its Site yet"),
            TOO_LONG,
            problem(415, "not sent as application/json"),
            problem(422, "JSON with other keys"),
            problem(429, "too many wrong codes from this address"),
            DISK,
        ],
        ..GET
    };
    Status = "How the box is: steps, memory, disk, medium, objects, releases", Route {
        path: "/api/v1/status",
        answers: &[json::<BoxStatus>(200, "now")],
        ..GET
    };
    Events = "What happened in this boot, and what happens", Route {
        path: "/api/v1/events",
        query: &[
            Parameter { name: "since", example: "N", what: "number of the first event", schema: schema::<u64> },
            Parameter { name: "follow", example: "true", what: "goes on with each new event", schema: schema::<bool> },
        ],
        answers: &[
            other(
                "application/jsonl",
                "an event a line, from the number in the header `X-Foothold-First` on; with `Accept: text/event-stream` \
                 as server-sent events, which go on",
            ),
            problem(400, "a query that is wrong"),
        ],
        ..GET
    };
    Timeline = "Where the time went, from power-on to ready", Route {
        path: "/api/v1/timeline",
        answers: &[json::<Timeline>(200, "so far")],
        ..GET
    };
    Hosts = "The servers: their state, what is waited for, the last sign of life", Route {
        path: "/api/v1/hosts",
        answers: &[json::<HostList>(200, "now"), NO_HOSTS, problem(500, "reading the signs failed"), NO_CLUSTER],
        ..GET
    };
    Host = "All that is known of one server", Route {
        path: "/api/v1/hosts/{namespace}/{name}",
        answers: &[
            json::<HostStory>(200, "now"),
            problem(404, "no such host, or this release does not provision servers"),
            problem(500, "reading the signs failed"),
            problem(502, "the host is not as it should be"),
            NO_CLUSTER,
        ],
        ..GET
    };
    Clusters = "The application clusters: how far each is, and its nodes", Route {
        path: "/api/v1/clusters",
        answers: &[json::<ClusterList>(200, "now"), NO_CLUSTERS, NO_CLUSTER],
        ..GET
    };
    Cluster = "All that is known of one application cluster", Route {
        path: "/api/v1/clusters/{namespace}/{name}",
        answers: &[json::<ClusterStory>(200, "now"), NO_SUCH_CLUSTER, NO_CLUSTER],
        ..GET
    };
    ClusterKubeconfig = "The admin kubeconfig of an application cluster", Route {
        path: "/api/v1/clusters/{namespace}/{name}/kubeconfig",
        answers: &[other("application/yaml", "a kubeconfig"), NO_SUCH_CLUSTER, NO_CLUSTER],
        ..GET
    };
    ClusterFile = "An inventory (`hosts.ini`, `inventory.ini`) or a node's log (`NODE.log`) of an application cluster", Route {
        path: "/api/v1/clusters/{namespace}/{name}/files/{file}",
        answers: &[other("text/plain", "the file"), NO_SUCH_CLUSTER, DISK, NO_CLUSTER],
        ..GET
    };
    Kubeconfig = "The cluster's admin kubeconfig, for the address that the client used", Route {
        path: "/api/v1/kubeconfig",
        query: &[Parameter { name: "server", example: "URL", what: "another address", schema: schema::<String> }],
        answers: &[
            other("application/yaml", "a kubeconfig"),
            problem(400, "a query that is wrong"),
            problem(500, "the box's own kubeconfig is not one"),
            problem(503, "the cluster has none yet"),
        ],
        ..GET
    };
    SupportBundle = "Logs, status and files of the box, without secrets", Route {
        path: "/api/v1/support-bundle",
        answers: &[other("application/gzip", "a tar.gz"), problem(429, "another one is being made")],
        ..GET
    };
    TakeBundle = "Send what turns this release into the next", Route {
        method: Method::Post,
        path: "/api/v1/bundles",
        pace: Pace::Slow,
        takes: Some(Takes { body: Body::Other("application/x-tar"), what: "a bundle of `foothold diff`", most_bytes: None }),
        answers: &[
            json::<Taken>(201, "taken, whole and verified"),
            problem(400, "not a bundle, or cut off"),
            problem(403, "signed with another key"),
            problem(409, "made from another release than the one that runs"),
            problem(422, "damaged, or files are missing"),
            problem(429, "another bundle is being taken"),
            DISK,
            problem(503, "the release that runs is not known"),
            problem(507, "no room on DATA"),
        ],
        ..GET
    };
    Rehearse = "Ask the BMCs of a site, and change nothing", Route {
        method: Method::Post,
        path: "/api/v1/rehearsals",
        pace: Pace::Slow,
        takes: Some(yaml("BareMetalHosts and their Secrets", REHEARSAL_BYTES)),
        answers: &[
            json::<Rehearsal>(200, "what each BMC answered"),
            problem(400, "not such YAML"),
            TOO_LONG,
            problem(429, "another rehearsal is under way"),
        ],
        ..GET
    };
    KeepSite = "Keep a Site for the next start", Route {
        method: Method::Put,
        path: "/api/v1/site",
        takes: Some(yaml("a Site", MOST_BYTES)),
        answers: &[
            Answer { status: 202, body: Body::Empty, when: "kept" },
            problem(400, "not a Site: the line and the key are named"),
            TOO_LONG,
            DISK,
        ],
        ..GET
    };
    ReportToSite = "Write report, inventory and support bundle to the SITE partition", Route {
        method: Method::Post,
        path: "/api/v1/site/report",
        answers: &[
            json::<SiteReport>(202, "begun; the event `services/site-report` tells how it ended"),
            problem(409, "the medium has no SITE partition that can be written"),
        ],
        ..GET
    };
}

const NO_CLUSTERS: Answer = problem(404, "this release makes no application clusters");
const NO_SUCH_CLUSTER: Answer = problem(404, "no such cluster or file, none yet, or this release makes no clusters");
const NO_HOSTS: Answer = problem(404, "this release does not provision servers");
const NO_CLUSTER: Answer = problem(503, "the API server cannot be asked yet");

impl Operation {
    /// Every answer that it may give: its own, then the door's. A status may be there twice.
    pub fn answers(self) -> Vec<Answer> {
        let route = self.route();
        let door: &[Answer] = if route.who == Who::Token { &NO_TOKEN } else { &[] };
        let late = (route.pace == Pace::Soon).then_some(LATE);
        route.answers.iter().chain(door).copied().chain(late).collect()
    }

    /// Path and query as a person writes them: `/api/v1/events?since=N&follow=true`.
    fn written(self) -> String {
        let route = self.route();
        let query: Vec<String> = route.query.iter().map(|one| format!("{}={}", one.name, one.example)).collect();
        let sign = if query.is_empty() { "" } else { "?" };
        format!("{}{sign}{}", route.path, query.join("&"))
    }
}

/// The routes as a table in Markdown.
pub fn table() -> String {
    let mut table = "| method | path | token | what |\n|---|---|---|---|\n".to_owned();
    for operation in Operation::ALL {
        let (route, path) = (operation.route(), operation.written());
        let token = if route.who == Who::Token { "yes" } else { "no" };
        let _ = writeln!(table, "| {} | `{path}` | {token} | {} |", route.method.name(), operation.summary());
    }
    table
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{API, Operation, Who, table};

    #[test]
    fn no_route_is_listed_twice_and_none_tells_a_status_twice() {
        let places = |operation: &Operation| (operation.route().method, operation.route().path);
        let unique: BTreeSet<_> = Operation::ALL.iter().map(places).collect();
        assert_eq!(unique.len(), Operation::ALL.len());
        for operation in Operation::ALL {
            let statuses: Vec<u16> = operation.route().answers.iter().map(|answer| answer.status).collect();
            let unique: BTreeSet<u16> = statuses.iter().copied().collect();
            assert_eq!(unique.len(), statuses.len(), "{operation:?}: {statuses:?}");
        }
    }

    #[test]
    fn the_page_of_rest_has_the_table_of_this_list() {
        let page = include_str!("../../../src/rest/README.md");
        let table = table();
        assert!(page.contains(&table), "hint: this is the table that agent/src/rest/README.md needs:\n{table}");
    }

    #[test]
    fn nothing_but_the_claim_is_below_the_api_without_the_token() {
        for operation in Operation::ALL {
            let route = operation.route();
            let open = route.who == Who::Anybody && route.path.starts_with(API);
            assert_eq!(open, *operation == Operation::Claim, "{operation:?}");
        }
    }
}
