use proptest::prelude::{any, prop_assert, proptest};
use rstest::rstest;

use super::{Redactor, Values};

fn redact(text: &str) -> String {
    Redactor::new(&Values::default()).text(text)
}

#[rstest]
#[case::yaml("    client-key-data: LS0tLS1CRUdJTiBFQyBQ\n", "    client-key-data: [redacted]\n")]
#[case::certificate("ca: LS0tLS1CRUdJTiBDRVJU==", "ca: [redacted]==")]
#[case::json(r#"{"password": "a b, c", "user": "x"}"#, r#"{"password": "[redacted]", "user": "x"}"#)]
#[case::escaped(r#"msg="{\"token\":\"abc\"}""#, r#"msg="{\"token\":\"[redacted]\"}""#)]
#[case::flag("--bootstrap-token=abc --v=2", "--bootstrap-token=[redacted] --v=2")]
#[case::switch("--use-service-account-credentials=true x", "--use-service-account-credentials=true x")]
#[case::file("--token-auth-file=/etc/x", "--token-auth-file=/etc/x")]
#[case::header("Authorization: Bearer abc.def x", "Authorization: Bearer [redacted] x")]
#[case::url("proxy https://joe:pw@proxy:3128/ on", "proxy https://[redacted]@proxy:3128/ on")]
#[case::plain_url("GET https://198.18.0.1:6443/readyz", "GET https://198.18.0.1:6443/readyz")]
#[case::bootstrap("using abcdef.0123456789abcdef now", "using [redacted] now")]
#[case::jwt("got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl!", "got [redacted]!")]
#[case::command_line(
    "quiet foothold.site=YWJj foothold.mode=safe",
    "quiet foothold.site=[redacted] foothold.mode=safe"
)]
#[case::volume("      secret:\n        secretName: coredns\n", "      secret:\n        secretName: coredns\n")]
#[case::prose("the token expired at 10:00", "the token expired at 10:00")]
#[case::key("a\n-----BEGIN EC PRIVATE KEY-----\nMHcC\nAAAA\n-----END EC PRIVATE KEY-----\nb\n", "a\n[redacted]\nb\n")]
#[case::cut_off_key("x -----BEGIN PRIVATE KEY-----\nMHcC\n", "x [redacted]\n")]
#[case::key_file("--client-key=/etc/kubernetes/x.key --v=1", "--client-key=/etc/kubernetes/x.key --v=1")]
#[case::step("10:15:03 secrets controller started", "10:15:03 secrets controller started")]
fn secrets_go_and_the_rest_stays(#[case] text: &str, #[case] expected: &str) {
    assert_eq!(redact(text), expected);
}

/// Each kind in which programs write a secret; `PLANTED` is the secret.
const PLANTED: &[&str] = &[
    "tool --password PLANTED --v=2",
    "tool --password=PLANTED",
    "args: [\"--token\", \"PLANTED\", \"x\"]",
    "args:\n- --api-key\n- PLANTED\n- x\n",
    "  \"--secret\",\n  \"PLANTED\",\n",
    "env:\n- name: DB_PASSWORD\n  value: PLANTED\n",
    "env:\n- name: \"DB_PASSWORD\"\n  value: \"PLANTED\"\n",
    "{\"name\":\"DB_PASSWORD\",\"value\":\"PLANTED\"}",
    "AWS_SECRET_ACCESS_KEY=PLANTED",
    "export GITHUB_TOKEN=PLANTED",
    "{\"auths\":{\"r.example\":{\"auth\":\"PLANTED\"}}}",
    "  hashed_passwd: PLANTED\n",
    "hashed_passwd: \"$6$rounds=5000$saltsalt$PLANTED\"\n",
    "user: root:$6$saltsaltsalt$PLANTED:19000:0\n",
    "hash $2b$12$PLANTEDPLANTEDPLANTEDPLANTED",
    "password: |\n  PLANTED\n  more PLANTED\nnext: 1\n",
    "secret: >-\n    PLANTED\n",
    "password: correct horse PLANTED\n",
    "password = correct horse PLANTED\n",
    "password: \"with \\\" quote PLANTED\"\n",
    "password: 'PLANTED'   # of the BMC\n",
    "Authorization: Basic PLANTED",
    "authorization: bearer PLANTED",
    "X-Auth-Token: PLANTED",
    "Cookie: a=b; session=PLANTED; c=d",
    "Set-Cookie: id=PLANTED; Path=/",
    "GET /x?access_token=PLANTED&y=1",
    "GET /x?X-Amz-Signature=PLANTED&y=1",
    "postgres://joe:PLANTED@db:5432/x",
    "redis://:PLANTED@cache",
    "ipmitool -I lanplus -H 10.0.0.1 -U admin -P PLANTED power status",
    "curl -u admin:PLANTED https://bmc/redfish/v1",
    "sshpass -p PLANTED ssh x",
    "{\"UserName\":\"admin\",\"Password\":\"PLANTED\"}",
    "{'username': 'admin', 'password': 'PLANTED'}",
    "map[password:PLANTED user:x]",
    "Credentials{Username:x Password:PLANTED}",
    "<user>x</user><password>PLANTED</password>",
    "level=info msg=login password=PLANTED user=x",
    "machine r.example login joe password PLANTED",
    "kubeadm join 10.0.0.1:6443 --token abcdef.0123456789abcdef --certificate-key PLANTED",
    "apiVersion: v1\ndata:\n  anything: PLANTED\n  other: PLANTED\nkind: Secret\nmetadata:\n  name: x\n",
    "kind: Secret\nstringData:\n  config: |\n    PLANTED\ntype: Opaque\n",
    "{\"key\":\"-----BEGIN PRIVATE KEY-----\\nPLANTED\\n-----END PRIVATE KEY-----\"}",
    "remote ghp_PLANTEDPLANTEDPLANTEDPLANTED pushed",
    "clientSecret: PLANTED\n",
    // YAML and JSON in other forms.
    "password:\n  PLANTED\n",
    "passwords:\n- PLANTED\n- PLANTED\n",
    "password: \"begins\n  and goes on PLANTED\"\nnext: 1\n",
    "password: !!str PLANTED\n",
    "password: &bmc PLANTED\n",
    "password = !PLANTED\n",
    "password = \"\"\"\nPLANTED\n\"\"\"\n",
    "env:\n- value: PLANTED\n  name: DB_PASSWORD\n",
    "{\"value\":\"PLANTED\",\"name\":\"DB_PASSWORD\"}",
    "{\"apiVersion\":\"v1\",\"data\":{\"a\":\"PLANTED\",\"b\":\"{PLANTED}\"},\"kind\":\"Secret\"}",
    "last-applied: \"{\\\"kind\\\":\\\"Secret\\\",\\\"stringData\\\":{\\\"a\\\":\\\"PLANTED\\\"}}\"\n",
    "{\n  \"data\": {\n    \"a\": \"PLANTED\"\n  },\n  \"kind\": \"Secret\"\n}\n",
    "items:\n- kind: 'Secret' # of the BMC\n  data:\n    a: PLANTED\n",
    "kind: Secret\ndata: {a: PLANTED,\n  b: PLANTED}\n",
    "chpasswd:\n  expire: false\n  list: |\n    root:PLANTED\n",
    "<password encrypted=\"false\">PLANTED</password>",
    "<string name=\"password\">PLANTED</string>",
    // Command lines.
    "sshpass -pPLANTED ssh x",
    "sshpass -p 'PLANTED' ssh x",
    "mysql -uroot -pPLANTED x",
    "/usr/bin/curl -uadmin:PLANTED https://bmc",
    "curl --user=admin:PLANTED https://bmc",
    "curl -H \"Authorization: token PLANTED\" https://x",
    "docker login -u joe -p PLANTED r.example",
    "skopeo copy --src-creds joe:PLANTED docker://r.example/x",
    "crictl pull --creds joe:PLANTED r.example/x",
    "ldapsearch -x -D cn=admin -w PLANTED -b dc=x",
    "ipmitool -I lanplus user set password 2 PLANTED",
    "ipmitool -U admin -PPLANTED power status",
    "echo PLANTED | passwd --stdin root",
    "echo 'root:PLANTED' | chpasswd",
    "ENV DB_PASSWORD PLANTED",
    // Files of programs, and what they tell.
    "machine r.example\nlogin joe\npassword PLANTED\n",
    "joe:$apr1$saltsalt$PLANTEDPLANTEDPLANTED",
    "PresharedKey = PLANTED=\n",
    "snmpCommunity: PLANTED\n",
    "rocommunity PLANTED 10.0.0.0/8\n",
    "key \"x\" { algorithm hmac-sha256; secret \"PLANTED\"; };",
    "The initial admin password is: PLANTED",
    "Authorization: ApiKey PLANTED\n",
    "Proxy-Authorization: PLANTED\n",
    // Lists and tables.
    "{\"password\":[\"PLANTED\",\"PLANTED\"]}",
    "{\"password\":{\"value\":\"PLANTED\"}}",
    "msg=\"{\\\"tokens\\\":[\\\"PLANTED\\\",\\\"PLANTED\\\"]}\" x=1",
    "password: [PLANTED, PLANTED]",
    "passwords: {a: PLANTED, b: PLANTED}",
    "tokens:\n  a: PLANTED\n  b: PLANTED\n",
    "credentials:\n  user: x\n  value: PLANTED\n",
    "passwords:\n  - name: x\n    value: PLANTED\n",
    "{\n  \"tokens\": [\n    \"PLANTED\"\n  ],\n  \"secrets\": {\n    \"a\": { \"b\": \"PLANTED\" }\n  }\n}\n",
    "chpasswd: {expire: False, list: [\"root:PLANTED\"]}",
    "ssh_keys:\n  rsa_private: |\n    PLANTED\n",
    "password: | # of the BMC\n  PLANTED\n",
    "driver_info={'redfish_password': b'PLANTED'}",
    // Names of two words, and short ones.
    "api key: PLANTED",
    "Community String: PLANTED",
    "DB_PASS=PLANTED",
    "dbPass: PLANTED",
    "db_pw=PLANTED",
    "keytool -storepass PLANTED -keypass PLANTED",
    "REDISCLI_AUTH=PLANTED",
    "<entry key=\"password\" value=\"PLANTED\"/>",
    // Values with blanks.
    "docker run --env \"MYSQL_ROOT_PASSWORD=a PLANTED b\" mysql",
    "Environment=\"DB_PASSWORD=a PLANTED\"",
    "[mysql]\npassword=a PLANTED b\n",
    // Headers.
    "{\"Cookie\":[\"session=PLANTED\"]}",
    "{\"Set-Cookie\":\"PLANTED; Path=/\"}",
    "Authorization: Digest username=\"x\", response=\"PLANTED\"",
    // More command lines and configuration files.
    "kubectl create secret generic x --from-literal=any=PLANTED --from-literal any=PLANTED",
    "curl -sku admin:PLANTED https://bmc",
    "curl --proxy-user joe:PLANTED -U joe:PLANTED -b session=PLANTED https://x",
    "ipmitool -I lanplus -H 10.0.0.1 -k PLANTED power status",
    "ipmi-power -h 10.0.0.1 -u admin -p PLANTED --stat",
    "racadm -r 10.0.0.1 -u root -p PLANTED set iDRAC.Users.2.Password PLANTED",
    "snmpget -v2c -c PLANTED 10.0.0.1 sysDescr",
    "snmpwalk -v3 -u joe -A PLANTED -X PLANTED 10.0.0.1",
    "snmp-server community PLANTED RO",
    "com2sec readonly default PLANTED\n",
    "createUser joe SHA PLANTED AES PLANTED\n",
    "rootpw --plaintext PLANTED\n",
    "d-i passwd/root-password password PLANTED\n",
    "requirepass PLANTED\n",
    "x : PSK \"PLANTED\"",
    "nmcli device wifi connect x password PLANTED",
    "iscsiadm -m node -o update -n node.session.auth.password -v PLANTED",
    "etcdctl --user root:PLANTED get x",
    "smbclient //x/y -U joe%PLANTED",
    // Hashes, keys, URLs.
    "joe:{SSHA}PLANTEDPLANTED=",
    "root:abPLANTEDxyz.:19000:0:99999:7:::\n",
    "---- BEGIN SSH2 ENCRYPTED PRIVATE KEY ----\nPLANTED\n---- END SSH2 ENCRYPTED PRIVATE KEY ----\n",
    "PLANTED\nPLANTED\n-----END RSA PRIVATE KEY-----\nafter\n",
    "got eyJhbGciOiJSU0EtT0FFUCIsImVuYyI6IkExMjhHQ00ifQ.x.y.z.PLANTED",
    "mysql://joe:a/PLANTED@db/x",
    "https://hooks.slack.com/services/T0000/B0000/PLANTEDPLANTED",
];

#[test]
fn no_kind_of_secret_comes_out() {
    let came: Vec<String> = PLANTED.iter().copied().map(redact).filter(|said| said.contains("PLANTED")).collect();
    assert!(came.is_empty(), "{} came out:\n{}", came.len(), came.join("\n"));
}

#[test]
fn what_stands_around_a_secret_stays() {
    for (text, kept) in [
        (PLANTED[0], "--v=2"),
        (PLANTED[5], "- name: DB_PASSWORD\n  value: [redacted]\n"),
        (PLANTED[15], "password: [redacted]\nnext: 1\n"),
        (PLANTED[20], "# of the BMC"),
        (PLANTED[30], "-H 10.0.0.1 -U admin -P [redacted] power status"),
        (PLANTED[41], "kind: Secret\nmetadata:\n  name: x\n"),
        ("password: \"a\n  b\"\nnext: 1\n", "password: \"[redacted]\nnext: 1\n"),
        ("{\"data\":{\"a\":\"x\"},\"kind\":\"Secret\",\"n\":1}", "{\"data\":{[redacted]},\"kind\":\"Secret\",\"n\":1}"),
        ("authorization:\n  mode: Webhook\n", "authorization:\n  mode: Webhook\n"),
        ("docker run -p 8080:80 nginx", "docker run -p 8080:80 nginx"),
        ("error: secret \"web\" not found", "secret \"web\" not found"),
        ("mysql -p shop", "mysql -p shop"),
        ("the token is invalid", "the token is invalid"),
        ("name: &web nginx\n", "name: &web nginx\n"),
        (
            "secret:\n  secretName: web\n  items: [ { key: a, path: a } ]\n",
            "secretName: web\n  items: [ { key: a, path: a } ]\n",
        ),
        ("imagePullSecrets:\n- name: site\nnext: 1\n", "- name: site\nnext: 1\n"),
        ("tokens:\n  a: x\nnext: 1\n", "tokens:\n  a: [redacted]\nnext: 1\n"),
        ("auth:\n  port: 30005\n", "auth:\n  port: 30005\n"),
        ("docker://r.example:5000/x@sha256:ab", "docker://r.example:5000/x@sha256:ab"),
        ("curl -k -u joe https://x", "curl -k -u joe https://x"),
        ("ipmitool -k", "ipmitool -k"),
        ("x\n-----END RSA PRIVATE KEY-----\nafter\n", "[redacted]\nafter\n"),
    ] {
        let said = redact(text);
        assert!(said.contains(kept), "{said}");
    }
}

proptest! {
    #[test]
    fn no_text_breaks_it_and_no_password_stays(text in any::<String>(), word in "[A-Za-z0-9]{12}") {
        let _ = redact(&text);
        let told = redact(&format!("password: {word}\n"));
        prop_assert!(!told.contains(&word));
    }
}
