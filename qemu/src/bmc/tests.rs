//! The whole BMC on loopback, asked by a real client over TLS.

use reqwest::{Client, Method, StatusCode};
use rstest::rstest;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

const PASSWORD: &str = "a password of this test";
const SYSTEM: &str = "/redfish/v1/Systems/1";

struct Fixture {
    bmc: Bmc,
    power: Arc<MemoryPower>,
    client: Client,
    _tasks: JoinSet<()>,
}

impl Fixture {
    fn of(profile: &str) -> Self {
        Self::with(profile, |_| {})
    }

    fn with(profile: &str, change: impl FnOnce(&mut Options)) -> Self {
        let power = Arc::new(MemoryPower::new(false));
        let profile = Profile::known(profile).expect("a profile");
        let mut options = Options::on_loopback(profile, PASSWORD, power.clone());
        change(&mut options);
        let mut tasks = JoinSet::new();
        let bmc = Bmc::start(&mut tasks, options, &CancellationToken::new()).expect("started");
        let trusted = reqwest::Certificate::from_pem(bmc.certificate().as_bytes()).expect("a certificate");
        let client = Client::builder().no_proxy().tls_certs_only([trusted]).timeout(Duration::from_secs(10));
        Self { bmc, power, client: client.build().expect("a client"), _tasks: tasks }
    }

    async fn ask(&self, method: Method, path: &str, body: Option<Value>) -> (StatusCode, Value) {
        let url = format!("{}{path}", self.bmc.url());
        let mut request = self.client.request(method, url).basic_auth("admin", Some(PASSWORD));
        if let Some(body) = body {
            request = request.json(&body);
        }
        let answer = request.send().await.expect("an answer");
        let status = answer.status();
        let text = answer.text().await.expect("a body");
        (status, if text.is_empty() { Value::Null } else { serde_json::from_str(&text).expect("JSON") })
    }

    async fn get(&self, path: &str) -> Value {
        let (status, document) = self.ask(Method::GET, path, None).await;
        assert_eq!(status, StatusCode::OK, "{path}: {document}");
        document
    }

    async fn reset(&self, kind: &str) -> StatusCode {
        let path = format!("{SYSTEM}/Actions/ComputerSystem.Reset");
        self.ask(Method::POST, &path, Some(json!({ "ResetType": kind }))).await.0
    }
}

/// Every link of every document, from the root on.
async fn walk(fixture: &Fixture) -> usize {
    let mut open = vec!["/redfish/v1/".to_owned()];
    let mut seen: Vec<String> = Vec::new();
    while let Some(path) = open.pop() {
        if seen.contains(&path) {
            continue;
        }
        let document = fixture.get(&path).await;
        assert_eq!(document["@odata.id"].as_str(), Some(path.as_str()));
        seen.push(path);
        let mut values = vec![&document];
        while let Some(value) = values.pop() {
            match value {
                Value::Object(map) => {
                    open.extend(map.get("@odata.id").and_then(Value::as_str).map(str::to_owned));
                    values.extend(map.values());
                }
                Value::Array(list) => values.extend(list),
                _ => {}
            }
        }
    }
    seen.len()
}

#[rstest]
#[case("generic")]
#[case("idrac")]
#[case("ilo")]
#[case("supermicro")]
#[tokio::test]
async fn every_link_of_every_profile_leads_somewhere(#[case] profile: &str) {
    let fixture = Fixture::of(profile);
    assert!(walk(&fixture).await > 20);
}

#[tokio::test]
async fn vendors_differ_as_their_files_say() {
    let dell = Fixture::of("idrac").get("/redfish/v1/Systems/System.Embedded.1").await;
    assert_eq!(dell["SKU"], "0ABCDE1");
    let supermicro = Fixture::of("supermicro");
    let system = supermicro.get(SYSTEM).await;
    assert_eq!(system["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert!(system["Boot"].get("BootSourceOverrideTarget@Redfish.AllowableValues").is_none());
    assert!(supermicro.get("/redfish/v1/Managers/1").await.get("DateTime").is_none());
    let ilo = Fixture::of("ilo");
    assert_eq!(ilo.get("/redfish/v1/").await["Systems"]["@odata.id"], "/redfish/v1/Systems/");
    let url = format!("{}{SYSTEM}", ilo.bmc.url());
    let answer = ilo.client.get(url).basic_auth("admin", Some(PASSWORD)).send().await.expect("an answer");
    assert_eq!(answer.url().path(), "/redfish/v1/Systems/1/", "by way of 308");
}

#[tokio::test]
async fn nothing_but_the_root_is_told_without_the_right_password_or_a_session() {
    let fixture = Fixture::of("generic");
    let url = |path: &str| format!("{}{path}", fixture.bmc.url());
    let open = fixture.client.get(url("/redfish/v1")).send().await.expect("an answer");
    assert_eq!(open.status(), StatusCode::OK);
    let closed = fixture.client.get(url(SYSTEM)).send().await.expect("an answer");
    assert_eq!(closed.status(), StatusCode::UNAUTHORIZED);
    let told: Value = closed.json().await.expect("JSON");
    assert_eq!(told["error"]["@Message.ExtendedInfo"][0]["MessageId"], "Base.1.8.NoValidSession");

    let session = json!({ "UserName": "admin", "Password": PASSWORD });
    let sessions = url("/redfish/v1/SessionService/Sessions");
    let opened = fixture.client.post(&sessions).json(&session).send().await.expect("an answer");
    assert_eq!(opened.status(), StatusCode::CREATED);
    let token = opened.headers()["x-auth-token"].clone();
    let path = opened.headers()["location"].to_str().expect("text").to_owned();
    let with = |request: reqwest::RequestBuilder| request.header("X-Auth-Token", token.clone()).send();
    assert_eq!(with(fixture.client.get(url(SYSTEM))).await.expect("an answer").status(), StatusCode::OK);
    assert_eq!(with(fixture.client.delete(url(&path))).await.expect("an answer").status(), StatusCode::NO_CONTENT);
    assert_eq!(with(fixture.client.get(url(SYSTEM))).await.expect("an answer").status(), StatusCode::UNAUTHORIZED);
}

#[tokio::test]
async fn a_machine_goes_on_by_its_override_once_and_off_again() {
    let fixture = Fixture::of("generic");
    let boot = json!({ "Boot": { "BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "Cd" } });
    assert_eq!(fixture.ask(Method::PATCH, SYSTEM, Some(boot)).await.0, StatusCode::OK);
    assert_eq!(fixture.reset("ForceRestart").await, StatusCode::CONFLICT, "it is off");
    assert_eq!(fixture.reset("On").await, StatusCode::NO_CONTENT);
    assert_eq!(fixture.get(SYSTEM).await["PowerState"], "On");
    assert_eq!(fixture.get(SYSTEM).await["Boot"]["BootSourceOverrideEnabled"], "Disabled");
    assert_eq!(fixture.reset("ForceRestart").await, StatusCode::NO_CONTENT);
    let from: Vec<BootFrom> = fixture.power.boots().iter().map(|boot| boot.from).collect();
    assert_eq!(from, [BootFrom::Cd, BootFrom::Normal]);
    assert_eq!(fixture.reset("GracefulShutdown").await, StatusCode::NO_CONTENT);
    while fixture.get(SYSTEM).await["PowerState"] == "On" {}
    assert_eq!(fixture.get("/redfish/v1/Chassis/1").await["PowerState"], "Off");
}

#[tokio::test]
async fn a_medium_is_inserted_once_seen_everywhere_and_ejected() {
    let fixture = Fixture::of("generic");
    let drive = "/redfish/v1/Managers/bmc/VirtualMedia/Cd";
    let insert = format!("{drive}/Actions/VirtualMedia.InsertMedia");
    let wrong = fixture.ask(Method::POST, &insert, Some(json!({ "Image": "file:///etc/passwd" }))).await;
    assert_eq!(wrong.0, StatusCode::BAD_REQUEST);
    let image = json!({ "Image": "http://192.0.2.1/ramdisk.iso", "Inserted": true });
    assert_eq!(fixture.ask(Method::POST, &insert, Some(image.clone())).await.0, StatusCode::NO_CONTENT);
    assert_eq!(fixture.ask(Method::POST, &insert, Some(image)).await.0, StatusCode::CONFLICT);
    let seen = fixture.get(&format!("{SYSTEM}/VirtualMedia/Cd")).await;
    assert_eq!((&seen["Inserted"], &seen["ImageName"]), (&json!(true), &json!("ramdisk.iso")));
    let eject = format!("{drive}/Actions/VirtualMedia.EjectMedia");
    assert_eq!(fixture.ask(Method::POST, &eject, Some(json!({}))).await.0, StatusCode::NO_CONTENT);
    let seen = fixture.get(drive).await;
    assert_eq!((&seen["Inserted"], &seen["Image"]), (&json!(false), &Value::Null));
}

#[tokio::test]
async fn a_change_of_what_has_changed_since_is_refused_by_its_tag() {
    let fixture = Fixture::of("generic");
    let url = format!("{}{SYSTEM}", fixture.bmc.url());
    let get = || fixture.client.get(&url).basic_auth("admin", Some(PASSWORD));
    let tag = get().send().await.expect("an answer").headers()["etag"].clone();
    let same = get().header("If-None-Match", tag.clone()).send().await.expect("an answer");
    assert_eq!(same.status(), StatusCode::NOT_MODIFIED);
    let patch = |name: &str| {
        let request = fixture.client.patch(&url).basic_auth("admin", Some(PASSWORD)).header("If-Match", tag.clone());
        request.json(&json!({ "AssetTag": name })).send()
    };
    assert_eq!(patch("one").await.expect("an answer").status(), StatusCode::OK);
    assert_eq!(patch("two").await.expect("an answer").status(), StatusCode::PRECONDITION_FAILED);
}

#[tokio::test]
async fn subscribers_are_told_of_power_and_of_tests() {
    let fixture = Fixture::of("generic");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let to = format!("http://{}/events", listener.local_addr().expect("an address"));
    let subscription = json!({ "Destination": to, "Protocol": "Redfish", "Context": "rack 1",
        "HttpHeaders": [{ "X-Secret": "token" }] });
    let subscriptions = "/redfish/v1/EventService/Subscriptions";
    let (status, made) = fixture.ask(Method::POST, subscriptions, Some(subscription)).await;
    assert_eq!((status, &made["Context"]), (StatusCode::CREATED, &json!("rack 1")));
    assert!(made.get("HttpHeaders").is_none(), "secrets are not told");
    assert_eq!(fixture.reset("On").await, StatusCode::NO_CONTENT);

    let (mut stream, _) = listener.accept().await.expect("a connection");
    let mut got = Vec::new();
    while !String::from_utf8_lossy(&got).contains("ResourceChanged") {
        let mut part = [0; 4096];
        let length = stream.read(&mut part).await.expect("a part");
        assert!(length > 0, "closed early: {}", String::from_utf8_lossy(&got));
        got.extend_from_slice(&part[..length]);
    }
    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
    let got = String::from_utf8_lossy(&got).into_owned();
    assert!(got.contains("x-secret: token") && got.contains("rack 1"), "{got}");
}

#[tokio::test]
async fn faults_come_and_go_on_demand() {
    let fixture = Fixture::of("generic");
    fixture.bmc.set_faults(Faults { refuse_credentials: true, ..Faults::default() });
    assert_eq!(fixture.ask(Method::GET, SYSTEM, None).await.0, StatusCode::UNAUTHORIZED);
    fixture.bmc.set_faults(Faults { power: PowerFault::Inverted, ..Faults::default() });
    assert_eq!(fixture.get(SYSTEM).await["PowerState"], "On");
    assert_eq!(fixture.get("/redfish/v1/Chassis/1").await["PowerState"], "Off");
    fixture.bmc.set_faults(Faults { power: PowerFault::Deaf, ..Faults::default() });
    assert_eq!(fixture.reset("On").await, StatusCode::NO_CONTENT);
    assert!(!fixture.power.is_on());
    fixture.bmc.set_faults(Faults { flaps: Some(Flaps { answered: 0, dropped: 1 }), ..Faults::default() });
    let url = format!("{}/redfish/v1", fixture.bmc.url());
    fixture.client.get(&url).send().await.expect_err("dropped");
    fixture.bmc.set_faults(Faults::default());
    fixture.client.get(&url).send().await.expect("an answer");
}

#[tokio::test]
async fn an_image_is_fetched_for_the_machine_and_one_that_is_not_there_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let fixture = Fixture::with("generic", |options| options.images = Images::Fetched(dir.path().to_owned()));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let at = listener.local_addr().expect("an address");
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        for answer in ["200 OK\r\nContent-Length: 4\r\n\r\ndisc", "404 Not Found\r\nContent-Length: 0\r\n\r\n"] {
            let (mut stream, _) = listener.accept().await.expect("a connection");
            let mut head = [0; 1024];
            let _ = stream.read(&mut head).await.expect("a request");
            let answer = format!("HTTP/1.1 {}", answer.replacen("\r\n", "\r\nConnection: close\r\n", 1));
            stream.write_all(answer.as_bytes()).await.expect("sent");
        }
    });
    let drive = "/redfish/v1/Managers/bmc/VirtualMedia/Cd/Actions/VirtualMedia";
    let image = json!({ "Image": format!("http://{at}/ramdisk.iso") });
    let insert = format!("{drive}.InsertMedia");
    assert_eq!(fixture.ask(Method::POST, &insert, Some(image.clone())).await.0, StatusCode::NO_CONTENT);
    let file = fixture.power.image().expect("a medium");
    assert_eq!(fs_err::read(file).expect("read"), b"disc");
    let eject = fixture.ask(Method::POST, &format!("{drive}.EjectMedia"), None).await;
    assert_eq!((eject.0, fixture.power.image()), (StatusCode::NO_CONTENT, None));
    let (status, told) = fixture.ask(Method::POST, &insert, Some(image)).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(told.to_string().contains("404"), "{told}");
    let medium = fixture.get("/redfish/v1/Managers/bmc/VirtualMedia/Cd").await;
    assert_eq!(medium["Inserted"], false, "nothing is in the drive");
}
