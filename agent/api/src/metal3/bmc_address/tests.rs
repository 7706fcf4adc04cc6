use proptest::prelude::*;
use serde_json::json;

use super::*;

fn address(text: &str) -> BmcAddress {
    text.parse().unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

fn nobody() -> Credentials {
    Credentials { username: String::new(), password: String::new() }
}

/// Address, scheme, hostname, port, path.
#[test]
fn every_form_of_an_address_is_taken_apart() {
    let v6 = "fd00:20::7:11";
    let table = [
        ("10.20.0.17", "ipmi", "10.20.0.17", "", ""),
        ("10.20.0.17:6233", "ipmi", "10.20.0.17", "6233", ""),
        ("bmc7.site.example", "ipmi", "bmc7.site.example", "", ""),
        ("bmc1.example.com:6233", "ipmi", "bmc1.example.com", "6233", ""),
        ("[fd00:20::7:11]:6233", "ipmi", v6, "6233", ""),
        ("ipmi://10.20.0.17:6233", "ipmi", "10.20.0.17", "6233", ""),
        ("ipmi:10.20.0.17", "ipmi", "10.20.0.17", "", ""),
        ("ipmi:10.20.0.17:6233", "ipmi", "10.20.0.17", "6233", ""),
        ("ipmi://[fd00:20::7:11]:6233", "ipmi", v6, "6233", ""),
        ("libvirt://10.20.0.17:6233/?abc=def", "libvirt", "10.20.0.17", "6233", "/"),
        ("redfish://10.20.0.17", "redfish", "10.20.0.17", "", ""),
        ("redfish:10.20.0.17", "redfish", "10.20.0.17", "", ""),
        ("REDFISH://10.20.0.17", "redfish", "10.20.0.17", "", ""),
        ("redfish://10.20.0.17:6233/foo", "redfish", "10.20.0.17", "6233", "/foo"),
        ("redfish://[fd00:20::7:11]", "redfish", v6, "", ""),
        ("redfish://[fd00:20::7:11]:6233/foo", "redfish", v6, "6233", "/foo"),
        ("redfish+http://bmc/a%20b", "redfish+http", "bmc", "", "/a b"),
    ];
    for (text, scheme, hostname, port, path) in table {
        let read = address(text);
        let told = (read.scheme.as_str(), read.hostname.as_str(), read.port.as_deref().unwrap_or(""), &*read.path);
        assert_eq!(told, (scheme, hostname, port, path), "{text}");
    }
}

#[test]
fn what_is_no_address_is_refused_in_the_words_of_the_original() {
    let long = format!("ipmi://{}.example.com", "a".repeat(64));
    let unreadable = "failed to parse BMC address information: ";
    let table = [
        ("", "missing BMC address".to_owned()),
        ("test:10.20.0.9", "Unknown BMC type 'test' for address test:10.20.0.9".into()),
        ("irmc://10.20.0.9", "Unknown BMC type 'irmc' for address irmc://10.20.0.9".into()),
        ("ilo4://10.20.0.9", "Unknown BMC type 'ilo4' for address ilo4://10.20.0.9".into()),
        ("ilo5://10.20.0.9", "Unknown BMC type 'ilo5' for address ilo5://10.20.0.9".into()),
        ("ipmi+http://10.20.0.9", "Unknown BMC type 'ipmi+http' for address ipmi+http://10.20.0.9".into()),
        ("redfish+ftp://10.20.0.9", "Unknown BMC type 'redfish+ftp' for address redfish+ftp://10.20.0.9".into()),
        ("ipm:rack.site.example:6223", "Unknown BMC type 'ipm' for address ipm:rack.site.example:6223".into()),
        ("//127.0.0.1", "Unknown BMC type '' for address //127.0.0.1".into()),
        ("rack-.site.example", format!("{unreadable}BMC address hostname/IP : [rack-.site.example] is invalid")),
        ("ipmi://-rack.site.example", format!("{unreadable}BMC address hostname/IP : [-rack.site.example] is invalid")),
        (
            "ipmi://rack+1.site.example",
            format!("{unreadable}BMC address hostname/IP : [rack+1.site.example] is invalid"),
        ),
        ("ipmi://[fd00:20::7:1x]:6223", format!("{unreadable}BMC address hostname/IP : [fd00:20::7:1x] is invalid")),
        (&long, format!("{unreadable}BMC address hostname/IP : [{}.example.com] is invalid", "a".repeat(64))),
        (
            "[@]rack.site.example",
            format!("{unreadable}parse \"ipmi://[@]rack.site.example\": net/url: invalid userinfo"),
        ),
        (
            "[fd00:20::7:11]",
            format!("{unreadable}parse \"[fd00:20::7:11]\": first path segment in URL cannot contain colon"),
        ),
        ("redfish://[fe80::1", format!("{unreadable}parse \"redfish://[fe80::1\": missing ']' in host")),
        ("redfish://bmc:http", format!("{unreadable}parse \"redfish://bmc:http\": invalid port \":http\" after host")),
        // Read as host and port at first, as the original does.
        ("redfish://bmc/%zz", format!("{unreadable}BMC address hostname/IP : [redfish://bmc/%zz] is invalid")),
        ("redfish://b mc/", format!("{unreadable}BMC address hostname/IP : [redfish://b mc/] is invalid")),
    ];
    for (text, message) in table {
        assert_eq!(text.parse::<BmcAddress>().map_err(|problem| problem.to_string()), Err(message), "{text}");
    }
}

/// Scheme, hardware type, boot, RAID, vendor's interfaces; MAC, network, ISO, secure boot, fast inspection.
#[test]
fn every_scheme_leads_to_its_driver() {
    let table = [
        ("ipmi", "ipmi", "ipxe", "no-raid", None, [false, true, false, false, false]),
        ("libvirt", "ipmi", "ipxe", "no-raid", None, [true, true, false, false, false]),
        ("redfish", "redfish", "ipxe", "redfish", None, [false, true, false, true, true]),
        ("ilo5-redfish", "redfish", "ipxe", "redfish", None, [false, true, false, true, true]),
        ("idrac-redfish", "idrac", "ipxe", "idrac-redfish", Some("idrac-redfish"), [false, true, false, true, true]),
        ("redfish-virtualmedia", "redfish", "redfish-virtual-media", "redfish", None, [false, false, true, true, true]),
        ("ilo5-virtualmedia", "redfish", "redfish-virtual-media", "redfish", None, [false, false, true, true, true]),
        (
            "idrac-virtualmedia",
            "idrac",
            "idrac-redfish-virtual-media",
            "idrac-redfish",
            Some("idrac-redfish"),
            [false, false, true, true, true],
        ),
        ("redfish-uefihttp", "redfish", "redfish-https", "redfish", None, [false, false, true, true, true]),
    ];
    assert_eq!(table.len(), Driver::ALL.len());
    for (scheme, hardware, boot, raid, vendor, [mac, network, iso, secure, fast]) in table {
        let forms = if hardware == "ipmi" { vec![""] } else { vec!["", "+http", "+https"] };
        for suffix in forms {
            let read = address(&format!("{scheme}{suffix}://10.20.0.17"));
            let driver = read.driver;
            assert_eq!((driver.scheme(), driver.hardware_type()), (scheme, hardware));
            assert_eq!((driver.boot_interface(), driver.raid_interface()), (boot, raid), "{scheme}");
            assert_eq!(driver.vendor_interfaces(), vendor, "{scheme}");
            assert_eq!((driver.needs_mac(), driver.needs_provisioning_network()), (mac, network), "{scheme}");
            assert_eq!((driver.boots_iso(), driver.supports_secure_boot()), (iso, secure), "{scheme}");
            assert_eq!(driver.fast_inspect_interface().is_some(), fast, "{scheme}");
            assert_eq!(driver.firmware_interface().is_some(), fast, "{scheme}");
            assert_eq!(driver.uses_virtual_media(), scheme.ends_with("-virtualmedia"));
            assert_eq!(read.transport == Transport::Http, suffix == "+http");
            assert_eq!(serde_json::to_value(driver).expect("a name").as_str().map(str::is_empty), Some(false));
        }
    }
}

#[test]
fn ironic_is_told_where_the_bmc_is() {
    let v6 = "[fd00:20::7:11]";
    let table = [
        (
            "ipmi://10.20.0.17",
            json!({"ipmi_port": "623", "ipmi_address": "10.20.0.17", "ipmi_priv_level": "ADMINISTRATOR"}),
        ),
        (
            "ipmi://10.20.0.17:6233?privilegelevel=OPERATOR",
            json!({"ipmi_port": "6233", "ipmi_address": "10.20.0.17", "ipmi_priv_level": "OPERATOR"}),
        ),
        (
            "ipmi://10.20.0.17?privilegelevel=%zz",
            json!({"ipmi_port": "623", "ipmi_address": "10.20.0.17", "ipmi_priv_level": "ADMINISTRATOR"}),
        ),
        (
            "redfish://10.20.0.17/redfish/v1/foo/bar",
            json!({"redfish_address": "https://10.20.0.17", "redfish_system_id": "/redfish/v1/foo/bar"}),
        ),
        (
            "redfish+http://10.20.0.17/foo/bar",
            json!({"redfish_address": "http://10.20.0.17", "redfish_system_id": "/foo/bar"}),
        ),
        ("redfish+https://10.20.0.17/", json!({"redfish_address": "https://10.20.0.17"})),
        ("redfish-virtualmedia://10.20.0.17/redfish/v1/", json!({"redfish_address": "https://10.20.0.17"})),
        (
            &format!("idrac-virtualmedia://{v6}:8080/foo"),
            json!({"redfish_address": format!("https://{v6}:8080"), "redfish_system_id": "/foo"}),
        ),
    ];
    for (text, mut wanted) in table {
        let read = address(text);
        let prefix = if read.driver.is_ipmi() { "ipmi" } else { "redfish" };
        wanted[format!("{prefix}_username")] = json!("");
        wanted[format!("{prefix}_password")] = json!("");
        assert_eq!(Value::Object(read.driver_info(&nobody(), false)), wanted, "{text}");
        wanted[format!("{prefix}_verify_ca")] = json!(false);
        assert_eq!(Value::Object(read.driver_info(&nobody(), true)), wanted, "{text}");
    }
}

#[test]
fn credentials_are_trimmed_and_must_be_there() {
    let read = Credentials::new(Some(" admin\n"), Some("secret\n")).expect("credentials");
    assert_eq!((read.username.as_str(), read.password.as_str()), ("admin", "secret"));
    assert_eq!(format!("{read:?}"), "Credentials(\"admin\", ***)");
    let table = [
        (None, Some("p"), "Missing BMC connection detail 'username' in credentials"),
        (Some(" "), Some("p"), "Missing BMC connection detail 'username' in credentials"),
        (Some("u"), Some(""), "Missing BMC connection details 'password' in credentials"),
    ];
    for (username, password, message) in table {
        let problem = Credentials::new(username, password).expect_err("refused").to_string();
        assert_eq!(problem, format!("Validation error with BMC credentials: {message}"));
    }
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,80}") {
        let _ = text.parse::<BmcAddress>();
    }

    #[test]
    fn nothing_that_looks_like_an_address_makes_it_panic(
        text in "(ipmi|redfish|idrac-virtualmedia)?(\\+http)?:?(//)?[@\\[\\]:%./?#&=a-f0-9 -]{0,40}",
    ) {
        if let Ok(read) = text.parse::<BmcAddress>() {
            prop_assert!(read.driver_info(&nobody(), false).len() >= 3);
        }
    }

    #[test]
    fn what_is_written_together_is_taken_apart_again(
        driver in 0..Driver::ALL.len(), octets in any::<[u8; 4]>(), port in any::<Option<u16>>(), path in "(/[a-zA-Z0-9._-]{1,8}){0,3}",
    ) {
        let driver = Driver::ALL[driver];
        let ip = std::net::Ipv4Addr::from(octets);
        let colon = port.map(|port| format!(":{port}")).unwrap_or_default();
        let read = address(&format!("{}://{ip}{colon}{path}", driver.scheme()));
        prop_assert_eq!(read.driver, driver);
        prop_assert_eq!(read.hostname, ip.to_string());
        prop_assert_eq!(read.port, port.map(|port| port.to_string()));
        prop_assert_eq!(read.path, path);
    }
}
