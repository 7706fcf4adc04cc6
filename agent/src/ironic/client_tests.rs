use reqwest::{Method, StatusCode};
use rstest::rstest;

use super::{Answer, Version, words};

#[test]
fn errors_are_told_in_ironics_words() {
    let nested =
        br#"{"error_message": "{\"faultcode\": \"Client\", \"faultstring\": \"Node n is locked by host h\"}"}"#;
    assert_eq!(words(nested).as_deref(), Some("Node n is locked by host h"));
    let plain = br#"{"error_message": {"faultstring": "no"}}"#;
    assert_eq!(words(plain).as_deref(), Some("no"));
    assert_eq!(words(b"<html>"), None);
}

/// Texts of Ironic's `common/exception.py` and of its API.
#[rstest]
#[case::locked(
    "PATCH",
    409,
    "Node n is locked by host h, please retry after the current operation is completed.",
    true
)]
#[case::under_way("PATCH", 409, "Node n can not be updated while a state transition is in progress.", true)]
#[case::no_worker("PUT", 503, "Requested action cannot be performed due to lack of free conductor workers.", true)]
#[case::of_another(
    "PATCH",
    409,
    "Instance i is already associated with a node, it cannot be associated with this other node n",
    false
)]
#[case::not_in_this_state(
    "PATCH",
    409,
    "Node n can not have boot_interface updated unless it is in one of allowed states",
    false
)]
#[case::in_use("DELETE", 409, "Node n is associated with instance i.", false)]
#[case::there_already("POST", 409, "A node with name n already exists.", false)]
#[case::starting("PUT", 503, "Ironic is starting: ask again", true)]
#[case::a_gateway("PUT", 502, "", true)]
#[case::another_password("GET", 401, "", true)]
#[case::another_writer("PATCH", 500, "(sqlite3.OperationalError) database is locked", true)]
#[case::its_own_fault("PUT", 500, "Redfish exception occurred.", false)]
fn what_waiting_does_not_change_is_told(
    #[case] method: Method,
    #[case] status: u16,
    #[case] text: &str,
    #[case] passing: bool,
) {
    let status = StatusCode::from_u16(status).expect("a status");
    let body = serde_json::json!({"error_message": {"faultstring": text}}).to_string().into_bytes();
    let error = Answer::judged(method, "/v1/nodes/n", status, body).err().expect("no success");
    assert_eq!(error.is_passing(), passing, "{error:?}");
}

#[test]
fn versions_are_numbers_not_fractions() {
    assert!(Version::parse("1.100") > Version::parse("1.95"));
    assert_eq!(Version::parse("1"), None);
}
