//! Runs real Helm, in the toolbox and without a network: it renders the chart with one part at a time.

use std::path::Path;

use anyhow::{Context as _, Result};

use super::chart::CHART;
use super::parts::Parts;
use crate::rootfs::programs::place;
use crate::store::{Cache, Made, WorkDir};
use crate::toolbox::Toolbox;

/// Placeholders in rendered objects for what only the site knows.
pub const NODE: &str = "NODE";
/// The placeholder of the address, if the definition has none.
const ADDRESS: &str = "ADDRESS";
/// Namespace of rendered objects.
pub const NAMESPACE: &str = "foothold";

/// Helm, ready to run.
pub struct Helm<'a> {
    toolbox: &'a Toolbox,
    work: WorkDir,
}

impl<'a> Helm<'a> {
    /// Writes the program to a folder.
    pub fn new(cache: &Cache, toolbox: &'a Toolbox, programs: &Made) -> Result<Self> {
        let work = cache.work_dir()?;
        fs_err::create_dir(work.path().join("home"))?;
        place(cache, programs, "helm", &work.path().join("helm"))?;
        Ok(Self { toolbox, work })
    }

    /// Checks the chart, and renders each part by itself. Returns its name and objects.
    pub fn render(&self, charts: &Path, parts: &Parts) -> Result<Vec<(&'static str, String)>> {
        let node = ["--set".to_owned(), format!("node={NODE}")];
        let values = fs_err::read_to_string(charts.join(CHART).join("values.yaml"))?;
        let mut of_site = node.to_vec();
        if values.lines().any(|line| line == "address: \"\"") {
            of_site.extend(["--set".to_owned(), format!("address={ADDRESS}")]);
        }
        let mut rendered = Vec::new();
        for part in parts.names() {
            let mut settings = of_site.clone();
            for other in parts.names() {
                settings.extend(["--set".to_owned(), format!("parts.{other}={}", other == part)]);
            }
            let arguments = ["template", CHART, &format!("./{CHART}"), "--namespace", NAMESPACE].map(str::to_owned);
            let text =
                self.run(charts, &arguments, &settings).with_context(|| format!("rendering the part `{part}`"))?;
            rendered.push((part, text));
        }
        // Last: what is wrong with values it says on standard output alone.
        let lint = ["lint".to_owned(), "--strict".to_owned(), format!("./{CHART}")];
        self.run(charts, &lint, &node).context("checking the chart")?;
        Ok(rendered)
    }

    /// In a network namespace with nothing in it.
    fn run(&self, charts: &Path, arguments: &[String], settings: &[String]) -> Result<String> {
        let home = self.work.path().join("home");
        let tool = self.toolbox.tool("unshare").args(["--net", "--"]).arg(self.work.path().join("helm"));
        let tool = tool.args(arguments).args(settings).reads(self.work.path()).reads(charts).writes(&home).cwd(charts);
        let variables = ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"];
        let tool = variables.iter().fold(tool, |tool, variable| tool.env(variable, home.to_string_lossy()));
        String::from_utf8(tool.run()?).context("what Helm prints is no text")
    }
}
