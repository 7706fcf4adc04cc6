//! Configurations of `HAProxy`, out of templates of Go that users may replace. Pure.
//!
//! What a template finds, as Airship's do: `.ContainerPorts`, each with `.Name` and `.ContainerPort`; `.Servers`, each with
//! `.Name` and `.IP`.

use std::collections::HashMap;
use std::net::IpAddr;

use agent_api::net::before_port;
use gtmpl_ng::Value;

use crate::operators::kit::templates;

/// Most that a template may write.
const MOST: usize = 900_000;

/// A port at which a load balancer answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContainerPort {
    /// Its name.
    pub name: String,
    /// The port.
    pub port: i32,
}

/// A server behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its name.
    pub name: String,
    /// Its address.
    pub ip: IpAddr,
}

fn map<const N: usize>(fields: [(&str, Value); N]) -> Value {
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value));
    Value::Object(fields.collect::<HashMap<_, _>>())
}

/// The text of a template.
///
/// # Errors
/// What is wrong with the template, with its line.
pub fn render(template: &str, ports: &[ContainerPort], servers: &[Server]) -> Result<String, String> {
    let ports = ports
        .iter()
        .map(|port| map([("Name", port.name.clone().into()), ("ContainerPort", i64::from(port.port).into())]))
        .collect();
    let servers = servers.iter().map(|server| {
        map([("Name", server.name.clone().into()), ("IP", before_port(&server.ip.to_string()).into_owned().into())])
    });
    let values = map([("ContainerPorts", Value::Array(ports)), ("Servers", Value::Array(servers.collect()))]);
    let text = templates::render(template, values, &[], MOST)?;
    Ok(if text.ends_with('\n') { text } else { text + "\n" })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports() -> Vec<ContainerPort> {
        [30002, 30003].map(|port| ContainerPort { name: format!("port-{port}"), port }).to_vec()
    }

    fn servers() -> Vec<Server> {
        vec![
            Server { name: "w1".to_owned(), ip: [10, 0, 0, 1].into() },
            Server { name: "w2".to_owned(), ip: "2001:db8::2".parse().expect("an address") },
        ]
    }

    /// The words that Airship's own templates are made of.
    #[test]
    fn a_template_of_airships_users_is_read_as_go_reads_it() {
        let template = "global\n  daemon\n{{- $servers := .Servers }}\n{{- range .ContainerPorts }}\n{{- $containerPort := . }}\n\
                        frontend {{ $containerPort.Name }}-frontend\n  bind *:{{ $containerPort.ContainerPort }}\n\
                        {{- range $servers }}\n{{- $server := . }}\n  server {{ $server.Name }} {{ $server.IP }}:{{ $containerPort.ContainerPort }}\n\
                        {{ end -}}\n{{ end -}}\n";
        let text = render(template, &ports()[..1], &servers()).expect("rendered");
        assert_eq!(
            text,
            "global\n  daemon\nfrontend port-30002-frontend\n  bind *:30002\n  server w1 10.0.0.1:30002\n\n  server w2 \
             [2001:db8::2]:30002\n"
        );
    }

    /// There they went through a template for HTML, which wrote `&#34;` for a quotation mark.
    #[test]
    fn nothing_is_escaped() {
        let text = render("{{ range .Servers }}{{ .Name }} \"{{ .IP }}\" '<>&'\n{{ end }}", &[], &servers()[..1]);
        assert_eq!(text.expect("rendered"), "w1 \"10.0.0.1\" '<>&'\n");
    }

    #[test]
    fn what_is_wrong_with_a_template_is_said() {
        for (template, words) in [
            ("{{ range .Servers }}", "EOF"),
            ("{{ .Nonsense.More }}", "Nonsense"),
            ("{{ nonsense 1 }}", "nonsense"),
            ("{{define \"r\"}}{{template \"r\" .}}{{end}}{{template \"r\" .}}", ""),
            ("{{ range 100000000 }}x{{ end }}", ""),
        ] {
            let why = render(template, &ports(), &servers()).expect_err("refused");
            assert!(why.to_lowercase().contains(&words.to_lowercase()), "{template}: {why}");
        }
    }
}
