//! What a host, its node, the box's table and the cluster's events come to. Pure.

use agent_api::host_story::{
    BMC_ANSWERS, BmcSign, DhcpClient, DhcpSign, Happening, HappeningKind, HostLine, HostStory, HttpSign, LastSign,
    SignKind, Signs, Waits,
};
use agent_api::metal3::{BareMetalHost, Condition, ConditionStatus, Nullable, OperationMetric, Time};
use jiff::Timestamp;
use serde_json::Value;

use crate::ironic::Node;
use crate::signs::{self, Table, node};

/// Ironic's name of a host's node: that which it gave, or that which the controller gives.
pub(super) fn ident(host: &BareMetalHost) -> String {
    let id = host.status.as_ref().map(|status| &status.provisioning.id).filter(|id| !id.is_empty());
    id.cloned().unwrap_or_else(|| format!("{}~{}", namespace(host), name(host)))
}

/// The node of a host among all.
pub(super) fn node_of<'a>(host: &BareMetalHost, nodes: &'a [Node]) -> Option<&'a Node> {
    let ident = ident(host);
    nodes.iter().find(|node| node.uuid == ident || node.name.as_deref() == Some(&ident))
}

/// A host in one line.
pub(super) fn line(host: &BareMetalHost, node: Option<&Node>, table: &Table, now: Timestamp) -> HostLine {
    let status = host.status.as_ref();
    let error = status.and_then(|status| {
        let kind = status.error_type.map(|kind| serde_json::to_value(kind).unwrap_or_default());
        let kind = kind.as_ref().and_then(Value::as_str).map(|kind| format!("{kind}: ")).unwrap_or_default();
        (!status.error_message.is_empty()).then(|| format!("{kind}{}", status.error_message))
    });
    HostLine {
        namespace: namespace(host).to_owned(),
        name: name(host).to_owned(),
        state: host.state().name().to_owned(),
        error,
        waits: waits(host, node, table, now),
        last: all_signs(&signs_of(host, node, table)).into_iter().max_by_key(|sign| sign.at),
    }
}

/// All of a host. `events`: of the cluster, about it.
pub(super) fn story(
    host: &BareMetalHost,
    node: Option<&Node>,
    table: &Table,
    events: &[Value],
    problems: Vec<String>,
    now: Timestamp,
) -> HostStory {
    let conditions = host.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
    let signs = signs_of(host, node, table);
    let mut timeline = states(host);
    timeline.extend(conditions.iter().map(changed));
    timeline.extend(events.iter().filter(|event| is_about(event, host)).filter_map(happened));
    timeline.extend(all_signs(&signs).into_iter().map(seen));
    timeline.sort_by_key(|happening| (happening.at, happening.kind));
    HostStory { line: line(host, node, table, now), conditions, signs, timeline, problems }
}

fn namespace(host: &BareMetalHost) -> &str {
    host.metadata.namespace.as_deref().unwrap_or_default()
}

fn name(host: &BareMetalHost) -> &str {
    host.metadata.name.as_deref().unwrap_or_default()
}

fn signs_of(host: &BareMetalHost, node: Option<&Node>, table: &Table) -> Signs {
    let ramdisk = node.and_then(node::ramdisk);
    let agent = ramdisk.as_ref().and_then(|ramdisk| ramdisk.url.clone());
    let (dhcp, http) = (table.dhcp_of(host), table.http_of(host, agent.as_deref()));
    Signs { bmc: bmc_of(host, node), dhcp, http, ramdisk }
}

/// As Ironic knows it; while something waits for it, as it answers the controller.
fn bmc_of(host: &BareMetalHost, node: Option<&Node>) -> Option<BmcSign> {
    let all = host.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let own = all.iter().find(|it| it.kind == BMC_ANSWERS);
    let mut sign = node.map(node::bmc).or_else(|| own.map(|_| BmcSign::default()))?;
    if let Some(own) = own {
        sign.answers = Some(own.status == ConditionStatus::True);
        sign.problem = (own.status != ConditionStatus::True).then(|| own.message.clone());
    }
    Some(sign)
}

/// By the signs of life while Ironic is at work; else in the controller's words.
fn waits(host: &BareMetalHost, node: Option<&Node>, table: &Table, now: Timestamp) -> Option<Waits> {
    if let Some(node) = node
        && let Some(stage) = signs::look(host, node, Some(table), now)
    {
        let since = signs::began(host).map(Time);
        let bmc = bmc_of(host, Some(node)).and_then(|bmc| bmc.problem.filter(|_| bmc.answers == Some(false)));
        let what = bmc.map_or_else(|| stage.says(), |problem| format!("{problem}; {}", stage.says()));
        return Some(Waits { what, since, until: stage.until(node).map(Time) });
    }
    let condition = |kind: &str| {
        let all = host.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        all.iter().find(|it| it.kind == kind)
    };
    if condition("Ready").is_some_and(|ready| ready.status == ConditionStatus::True) {
        return None;
    }
    let Some(progressing) = condition("Progressing") else {
        let since = host.metadata.creation_timestamp.as_ref().map(|time| Time(time.0));
        return Some(Waits { what: "the controller has not looked at it yet".to_owned(), since, until: None });
    };
    let Condition { reason, message, .. } = progressing;
    let what = if message.is_empty() { reason.clone() } else { format!("{reason}: {message}") };
    // The controller tells the moment in its words.
    let until = message.split([' ', ',', ';']).find_map(|word| word.parse::<Timestamp>().ok());
    Some(Waits { what, since: Some(progressing.last_transition_time), until: until.map(Time) })
}

/// Its signs, one line each; of DHCP, question and answer.
fn all_signs(signs: &Signs) -> Vec<LastSign> {
    let mut all = Vec::new();
    let mut add = |at: Option<Time>, kind: SignKind, says: String| {
        all.extend(at.map(|at| LastSign { at, kind, says }));
    };
    if let Some(bmc) = &signs.bmc {
        let power = bmc.power.as_deref().unwrap_or("nothing");
        add(bmc.commanded, SignKind::Bmc, format!("told to change the power; says `{power}`"));
    }
    if let Some(dhcp) = &signs.dhcp {
        add(dhcp.asked.as_ref().map(|asked| asked.at), SignKind::Dhcp, asked(dhcp));
        add(dhcp.answered.as_ref().map(|answered| answered.at), SignKind::Dhcp, answered(dhcp));
    }
    if let Some(http) = &signs.http {
        add(Some(http.ended.unwrap_or(http.at)), SignKind::Http, fetched(http));
    }
    if let Some(ramdisk) = &signs.ramdisk {
        let at = ramdisk.url.as_ref().map(|url| format!(" from {url}")).unwrap_or_default();
        add(Some(ramdisk.heartbeat), SignKind::Ramdisk, format!("heartbeat{at}"));
    }
    all
}

fn asked(dhcp: &DhcpSign) -> String {
    let Some(asked) = &dhcp.asked else { return String::new() };
    let client = match asked.client {
        DhcpClient::Pxe => "its firmware (PXE)",
        DhcpClient::HttpBoot => "its firmware (HTTP)",
        DhcpClient::Ipxe => "iPXE",
        DhcpClient::System => "an operating system",
    };
    let architecture = asked.architecture.map(|number| format!(", architecture {number}")).unwrap_or_default();
    format!("{} of {client} at {}{architecture}", asked.message, dhcp.mac)
}

fn answered(dhcp: &DhcpSign) -> String {
    let Some(answered) = &dhcp.answered else { return String::new() };
    let who = if answered.ours { "the box".to_owned() } else { format!("another server, {},", answered.server) };
    let address = answered.address.map(|address| format!(" with {address}")).unwrap_or_default();
    format!("{} of {who} to {}{address}", answered.message, dhcp.mac)
}

fn fetched(http: &HttpSign) -> String {
    let HttpSign { client, path, .. } = http;
    match (http.status, http.bytes) {
        (Some(status), _) if http.cut => format!("{client} left while it fetched `{path}` ({status})"),
        (Some(status), Some(bytes)) if status < 300 => format!("{client} fetched `{path}`, {bytes} bytes"),
        (Some(status), _) => format!("{client} asked for `{path}` and got {status}"),
        (None, _) => format!("{client} fetches `{path}`"),
    }
}

/// When it came to be, and when operations began and ended.
fn states(host: &BareMetalHost) -> Vec<Happening> {
    let mut all = Vec::new();
    let mut add = |at: Option<Time>, word: &str, says: String| {
        let happening =
            |at| Happening { at, kind: HappeningKind::State, word: word.to_owned(), says, warning: false, count: None };
        all.extend(at.map(happening));
    };
    add(host.metadata.creation_timestamp.as_ref().map(|time| Time(time.0)), "created", "the host was made".to_owned());
    let deleted = host.metadata.deletion_timestamp.as_ref().map(|time| Time(time.0));
    add(deleted, "deleted", "its deletion was asked for".to_owned());
    let history = host.status.as_ref().and_then(|status| status.operation_history.clone()).unwrap_or_default();
    let moment = |time: Option<Nullable<Time>>| time.and_then(|time| time.0);
    for (word, metric) in [
        ("registering", history.register),
        ("inspecting", history.inspect),
        ("provisioning", history.provision),
        ("deprovisioning", history.deprovision),
    ] {
        let OperationMetric { start, end } = metric.unwrap_or_default();
        add(moment(start), word, format!("{word} began"));
        add(moment(end), word, format!("{word} ended"));
    }
    all
}

fn changed(condition: &Condition) -> Happening {
    let Condition { kind, reason, message, .. } = condition;
    let holds = match condition.status {
        ConditionStatus::True => "holds",
        ConditionStatus::False => "does not hold",
        ConditionStatus::Unknown => "is not known",
    };
    let more = if message.is_empty() { String::new() } else { format!(": {message}") };
    Happening {
        at: condition.last_transition_time,
        kind: HappeningKind::Condition,
        word: reason.clone(),
        says: format!("{kind} {holds} since then{more}"),
        warning: ["Healthy", BMC_ANSWERS].contains(&kind.as_str()) && condition.status == ConditionStatus::False,
        count: None,
    }
}

/// Not about a host that had the name before.
fn is_about(event: &Value, host: &BareMetalHost) -> bool {
    let uid = event["involvedObject"]["uid"].as_str().unwrap_or_default();
    uid.is_empty() || host.metadata.uid.as_deref().is_none_or(|own| own == uid)
}

/// An event of the cluster, of the old and of the new form.
fn happened(event: &Value) -> Option<Happening> {
    let time = |value: &Value| value.as_str()?.parse::<Timestamp>().ok().map(Time);
    let times = [
        &event["series"]["lastObservedTime"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["firstTimestamp"],
        &event["metadata"]["creationTimestamp"],
    ];
    let at = times.into_iter().find_map(time)?;
    let count = event["series"]["count"].as_i64().or(event["count"].as_i64()).filter(|count| *count > 1);
    let text = |name: &str| event[name].as_str().unwrap_or_default().to_owned();
    let warning = event["type"] == "Warning";
    Some(Happening { at, kind: HappeningKind::Event, word: text("reason"), says: text("message"), warning, count })
}

fn seen(sign: LastSign) -> Happening {
    let word = match sign.kind {
        SignKind::Bmc => "bmc",
        SignKind::Dhcp => "dhcp",
        SignKind::Http => "http",
        SignKind::Ramdisk => "ramdisk",
    };
    Happening {
        at: sign.at,
        kind: HappeningKind::Sign,
        word: word.to_owned(),
        says: sign.says,
        warning: false,
        count: None,
    }
}
