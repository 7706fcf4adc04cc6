//! The build: `Appliance -> Lock -> Toolbox -> stages -> Release -> outputs`, each arrow a function.
//!
//! What is expensive is one of the [`stages`]: a second build makes only what changed.

use std::path::Path;

use agent_api::menu::MenuEntry;
use agent_api::proof::{self, PROOF};
use agent_api::release::{
    Blob, BootEntry, Budgets, Clusters, ContentFile, Image, Kubernetes, Layer, Package, Release, SBOM,
};
use anyhow::{Context, Result, bail};
use rayon::prelude::*;

use crate::boot;
use crate::builder::{AgentProfile, Builder, SETS, package_names};
use crate::config::{Appliance, ByteSize};
use crate::content::{self, Carried};
use crate::disk::{Content, SourceFile};
use crate::format::qcow2::Compression;
use crate::format::{self, ImagePlan, OutputFile};
use crate::host::needs;
use crate::kubernetes::binaries::{Binaries, Source};
use crate::kubernetes::modules;
use crate::kubernetes::templates;
use crate::layer::{os, seal};
use crate::lock::Lock;
use crate::lock::apt::{Apt, Mirror};
use crate::lock::fetch;
use crate::lock::known::Known;
use crate::oci::service;
use crate::release::{sbom, sign::Signer};
use crate::rootfs::kernel;
use crate::stages::{self, Results, Site, Stage};
use crate::store::Made;
use crate::toolbox::{ImageTools, Toolbox, bootstrap};

/// zstd level of qcow2 files: their content is compressed already.
const QCOW2_LEVEL: i32 = 3;

/// Folder of the cache for what formats and builds share.
pub const IMAGES: &str = "images";

/// `Appliance -> Lock`: resolves everything anew.
pub fn resolve(at: &Builder, appliance: &Appliance) -> Result<Lock> {
    at.report.step("lock", "resolve").run(|step| {
        needs::ensure(&mut |line| step.note(line))?;
        let work = at.cache.work_dir()?;
        let apt = Apt::new(&work.path().join("apt"), &Mirror::of_host(at.network.mirror.as_deref())?)?;
        step.waiting("the Debian mirror", "its package lists");
        let security = apt.update()?;
        let mut lock = Lock::new(apt.archive_date()?);
        lock.without_security = !security;
        for (set, base) in SETS {
            let names = package_names(&at.packages().join(set).join("packages.txt"))?;
            let mut debs = apt.resolve(&names, base)?;
            if set == "kernel" {
                // What these depend on serves an initrd that is not ours.
                debs.retain(|deb| kernel::is_kernel(deb) || names.contains(&deb.name));
            }
            lock.debian.insert(set.to_owned(), debs);
            lock.asked.insert(set.to_owned(), names);
        }
        let kubernetes = &appliance.kubernetes;
        let on_demand = content::programs::on_demand(&at.images(), appliance)?;
        for set in modules::of(&kubernetes.source).chain(on_demand) {
            lock.modules.insert(set.name.to_owned(), set.digest(&at.packages())?);
        }
        if let Some(source) = Source::of(&kubernetes.source) {
            let version = kubernetes.version.to_string();
            lock.binaries = elsewhere(at, source, &version, &|line| step.note(line)).resolve()?;
        }
        for other in appliance.services.cluster_versions() {
            let version = other.version.to_string();
            if let Some(source) = Source::of(&other.source) {
                let found = elsewhere(at, source, &version, &|line| step.note(line)).resolve()?;
                lock.cluster_binaries.insert(version, found);
            } else if let Some(set) = modules::other(&version) {
                lock.modules.insert(set.name.to_owned(), set.digest(&at.packages())?);
            }
        }
        service::resolve(&service::declared(&at.images(), &appliance.services)?, &apt, &mut lock)?;
        content::resolve(at, appliance, &apt, &mut lock)?;
        let mut known = Known::read(&at.cache)?;
        known.warnings(&lock).iter().for_each(|warning| at.report.say(warning));
        known.learn(&lock);
        known.write(&at.cache)?;
        Ok::<_, anyhow::Error>(lock)
    })
}

/// An error when the package sets of a lock were resolved from other lists or recipes than those of now. It comes before
/// anything is made.
pub fn check(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<()> {
    for (set, _) in SETS {
        lock.packages_for(set, &package_names(&at.packages().join(set).join("packages.txt"))?)?;
    }
    for image in service::declared(&at.images(), &appliance.services)? {
        image.packages(lock)?;
    }
    content::check(at, appliance, lock)
}

/// Makes the toolbox of the lock, fetching what it is made of.
pub fn toolbox(at: &Builder, lock: &Lock) -> Result<(Toolbox, String)> {
    let debs = lock.packages("toolbox")?;
    let tree = bootstrap::tree_path(&at.cache, debs)?;
    let key = tree.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    at.report.step("build", "toolbox").run(|step| {
        if !bootstrap::is_complete(&tree) {
            needs::ensure(&mut |line| step.note(line))?;
            fetch::debs(&at.cache, &at.network, debs, &mut |line| step.note(line))?;
        }
        needs::may_enter()?;
        let toolbox = bootstrap::ensure(&at.cache, debs, &at.helper, &mut |line| step.note(line))?;
        Ok::<_, anyhow::Error>((toolbox, key))
    })
}

/// All programs that the definition needs but the agent, as one set.
pub fn programs(at: &Builder, appliance: &Appliance, lock: &Lock, toolbox: &Toolbox) -> Result<Made> {
    let site = Site::new(at, appliance, Some(lock), (toolbox, ""), None)?;
    stages::make(at, &stages::all_programs(&site)?)?.compiled()
}

fn elsewhere<'a>(
    at: &'a Builder,
    source: Source<'a>,
    version: &'a str,
    waiting: &'a (dyn Fn(&str) + Sync),
) -> Binaries<'a> {
    Binaries { cache: &at.cache, source, version, offline: at.network.offline, waiting }
}

/// The release and where its files lie.
pub struct Built {
    /// The manifest.
    pub release: Release,
    /// Its id.
    pub id: String,
    /// Everything of the medium: path below its root, source.
    pub medium: Vec<SourceFile>,
    /// What the menu offers.
    pub entries: boot::BootEntries,
    /// All programs of it, the agent's among them.
    pub programs: Made,
    /// Files of services for the agent, by name.
    pub exports: Made,
}

/// `Lock -> Programs -> Stock`: a cluster by kubeadm alone, to compare a box with.
pub fn stock_cluster(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<templates::Stock> {
    let (toolbox, key) = toolbox(at, lock)?;
    let site = Site::new(at, appliance, Some(lock), (&toolbox, &key), None)?;
    let mut list = stages::programs(&site)?;
    list.push(stages::templates(&site));
    let results = stages::make(at, &list)?;
    templates::stock(&templates::StateInput {
        cache: &at.cache,
        toolbox: &toolbox,
        helper: &at.helper,
        programs: &results.programs()?,
        templates: results.of("templates")?,
        waiting: &|_| (),
    })
}

/// `Lock -> Release`.
pub fn release(at: &Builder, appliance: &Appliance, lock: &Lock) -> Result<Built> {
    let (toolbox, key) = toolbox(at, lock)?;
    let signer = Signer::open(appliance.sign.as_ref())?;
    content::manifests::check(at, appliance, lock)?;
    let site = Site::new(at, appliance, Some(lock), (&toolbox, &key), Some(&signer))?;
    let list: Vec<Stage<'_>> = stages::system(&site)?.into_iter().chain(stages::carried(&site)?).collect();
    let results = stages::make(at, &list)?;
    let programs = results.all_programs()?;
    let mut images: Vec<Image> = results.of("containers-layer")?.fact("images")?;
    content::closure::check_own(&at.cache, &results.templates()?, &images)?;
    images.extend(results.services(&site.services)?.carried);
    images.extend(stages::images_of_other_versions(&site, &results)?);
    let input = content::Input {
        at,
        appliance,
        lock,
        own: &images,
        programs: &programs,
        made: &results.0,
        served: served(&list, &results)?,
    };
    let carried = content::gather(input)?;
    images.extend(carried.images.iter().cloned());
    let carried = Carried { images, ..carried };
    let manifest = manifest(at.agent, appliance, lock, &signer, &results, carried)?;
    let consoles = appliance.boot.consoles.iter().map(ToString::to_string).collect();
    let tools = ImageTools { toolbox: &toolbox, time: lock.made };
    let exports = results.services(&site.services)?.exports;
    let mut built = assemble(at, &tools, &signer, manifest, consoles, (programs, exports))?;
    let list = sbom::document(&sbom::Input {
        release: &built.release,
        id: &built.id,
        lock,
        programs: &stages::programs_with_others(&site, &results)?,
        agent: results.of("agent")?,
        parts: &sbom::parts::Parts::read(&at.cache, results.of("sbom")?)?,
        recipes: &site.recipes,
        services: &site.services,
    })?;
    built.add_signed(SBOM, list, &signer)?;
    Ok(built)
}

/// What of the stages' results the box serves.
fn served(list: &[Stage<'_>], results: &Results) -> Result<Vec<ContentFile>> {
    let mut files = Vec::new();
    for stage in list {
        if let Some(serves) = stage.serves {
            files.extend(serves(results.of(&stage.name)?)?);
        }
    }
    Ok(files)
}

impl Built {
    /// Puts a file into the release's folder, its signature beside it.
    fn add_signed(&mut self, name: &str, bytes: Vec<u8>, signer: &Signer) -> Result<()> {
        let signature = signer.sign(&bytes, &format!("{name} of release {}", self.id))?;
        let path = format!("foothold/releases/{}/{name}", self.id);
        let signature_path = format!("{path}.minisig");
        self.medium.push(SourceFile { path: signature_path, content: Content::Bytes(signature.into_bytes()) });
        self.medium.push(SourceFile { path, content: Content::Bytes(bytes) });
        Ok(())
    }
}

/// The manifest of the release, a pure function of what was made.
fn manifest(
    agent: AgentProfile,
    appliance: &Appliance,
    lock: &Lock,
    signer: &Signer,
    results: &Results,
    carried: Carried,
) -> Result<Release> {
    let (os, initrd) = (results.of("os")?, results.of("initrd")?);
    let layers = LAYERS.iter().map(|name| seal::layer_of(results.of(name)?)).collect::<Result<Vec<Layer>>>()?;
    let packages: Vec<Package> = os.fact("packages")?;
    Ok(Release {
        api_version: "foothold.dev/v1".into(),
        kind: "Release".into(),
        name: appliance.name.to_string(),
        version: appliance.version.to_string(),
        architecture: "amd64".into(),
        built: lock.made,
        development_key: signer.development,
        development_agent: agent == AgentProfile::Development,
        layers,
        boot: vec![BootEntry {
            name: "default".into(),
            kernel: os.file(os::KERNEL)?.clone(),
            initrd: initrd.file("initrd")?.clone(),
            command_line: appliance.boot.command_line().join(" "),
            kernel_release: os.fact("kernelRelease")?,
        }],
        kubernetes: Kubernetes {
            version: appliance.kubernetes.version.to_string(),
            pod_cidr: appliance.kubernetes.pod_cidr.to_string(),
            service_cidr: appliance.kubernetes.service_cidr.to_string(),
        },
        images: carried.images,
        content: carried.files,
        packages,
        data: appliance.first_boot.data.clone(),
        install: appliance.first_boot.install.clone(),
        ntp_serve: appliance.services.ntp_serve,
        registry_writable_bytes: appliance.services.registry_writable.map(ByteSize::bytes),
        provisioning: appliance.services.provisioning.clone(),
        clusters: appliance.services.clusters.as_ref().map(|clusters| Clusters {
            versions: clusters.versions.iter().map(|other| other.version.to_string()).collect(),
        }),
        storage: appliance.services.storage,
        sip: appliance.services.sip.clone(),
        vino: appliance.services.vino.clone(),
        budgets: Budgets {
            image_bytes: appliance.budgets.image.map(crate::config::ByteSize::bytes),
            memory_bytes: appliance.budgets.memory.map(crate::config::ByteSize::bytes),
            ready_within_secs: appliance.budgets.ready_within.map(|time| time.as_secs()),
        },
    })
}

/// Stages that make a layer, from the bottom to the top.
pub const LAYERS: [&str; 4] = ["os", "kubernetes-layer", "containers-layer", "appliance-layer"];

/// Everything of the medium, signed.
fn assemble(
    at: &Builder,
    tools: &ImageTools<'_>,
    signer: &Signer,
    release: Release,
    consoles: Vec<String>,
    (programs, exports): (Made, Made),
) -> Result<Built> {
    let bytes = serde_json::to_vec_pretty(&release)?;
    let id = crate::store::hash::bytes(&bytes).hex().to_owned();
    let comment = format!("release {id} of {} {}", release.name, release.version);
    let signature = signer.sign(&bytes, &comment)?;
    let folder = format!("foothold/releases/{id}");
    let mut medium = vec![
        SourceFile { path: format!("{folder}/release.json"), content: Content::Bytes(bytes) },
        SourceFile { path: format!("{folder}/release.json.minisig"), content: Content::Bytes(signature.into_bytes()) },
        SourceFile { path: format!("{folder}/{PROOF}"), content: Content::Reserved(proof::reserve(&id)) },
    ];
    for blob in store_blobs(&release) {
        let path = at.cache.blob_path(&blob.digest);
        let path_there = format!("foothold/{}", blob.digest.store_path());
        medium.push(SourceFile { path: path_there, content: Content::File { path, bytes: blob.size } });
    }
    let boot = release.boot.first().context("a release has a boot entry")?;
    let current = boot::BootEntry {
        entry: MenuEntry {
            release_id: id.clone(),
            title: format!("{} {}", release.name, release.version),
            parameters: boot.command_line.split_whitespace().map(str::to_owned).collect(),
        },
        kernel: at.cache.blob_path(&boot.kernel.digest),
        initrd: at.cache.blob_path(&boot.initrd.digest),
    };
    let entries = boot::BootEntries { current, previous: None, consoles };
    let files = boot::files::list(&entries, tools, &at.cache.path(IMAGES))?;
    let mut built = Built { release, id, medium, entries, programs, exports };
    built.add_signed(boot::files::BOOT_FILES, serde_json::to_vec_pretty(&files)?, signer)?;
    Ok(built)
}

/// What the release's store holds, sorted.
pub fn store_blobs(release: &Release) -> Vec<Blob> {
    let layers = release.layers.iter().map(seal::blob_of);
    let images = release.images.iter().flat_map(|image| image.blobs.iter().cloned());
    let files = release.content.iter().filter_map(ContentFile::blob);
    let mut blobs: Vec<Blob> = layers.chain(images).chain(files).collect();
    blobs.sort_by(|a, b| a.digest.cmp(&b.digest));
    blobs.dedup();
    blobs
}

/// Hashes everything that is about to be copied into images.
fn check_content(at: &Builder, release: &Release) -> Result<()> {
    let boot = release.boot.iter().flat_map(|entry| [entry.kernel.clone(), entry.initrd.clone()]);
    let blobs: Vec<Blob> = store_blobs(release).into_iter().chain(boot).collect();
    let whole = blobs.par_iter().map(|blob| at.cache.is_whole(blob)).collect::<Result<Vec<_>>>()?;
    match blobs.iter().zip(whole).find(|(_, whole)| !whole) {
        None => Ok(()),
        Some((blob, _)) => bail!("the cached file {} was damaged\nhint: build again: it is made anew", blob.digest),
    }
}

/// `Release -> outputs`.
pub fn outputs(at: &Builder, appliance: &Appliance, lock: &Lock, built: &Built, out: &Path) -> Result<Vec<OutputFile>> {
    let (toolbox, _) = toolbox(at, lock)?;
    let tools = ImageTools { toolbox: &toolbox, time: lock.made };
    let mut files = Vec::new();
    let mut checked = false;
    for output in &appliance.outputs {
        let plan = ImagePlan {
            release_id: built.id.clone(),
            built: u32::try_from(lock.made).context("a build time before 2106")?,
            name: appliance.name.to_string(),
            version: appliance.version.to_string(),
            store: built.medium.clone(),
            entries: built.entries.clone(),
            site: Vec::new(),
            virtual_bytes: output.size.map(crate::config::ByteSize::bytes),
            max_bytes: output.max_size.map(crate::config::ByteSize::bytes),
            compression: compression_of(output),
            cache: at.cache.path(IMAGES),
            out: out.to_owned(),
        };
        let format = image_format(output.format);
        if let Some(file) = format::recall(format, &plan, &tools)? {
            at.report.skipped("build", format.name(), "cached");
            files.push(file);
            continue;
        }
        if !checked {
            check_content(at, &built.release)?;
            checked = true;
        }
        files.push(one_output(at, format, &plan, &tools)?);
    }
    Ok(files)
}

fn one_output(at: &Builder, format: format::Format, plan: &ImagePlan, tools: &ImageTools<'_>) -> Result<OutputFile> {
    let step = at.report.step("build", format.name());
    match format::write(format, plan, tools, &mut |done, total| step.bytes(done, Some(total))) {
        Ok(file) => {
            let mut detail = serde_json::Map::new();
            detail.insert("bytes".into(), file.bytes.into());
            step.done_with(detail);
            Ok(file)
        }
        Err(error) => {
            step.failed(&error.to_string());
            Err(anyhow::Error::new(error).context(format!("writing the {} image", format.name())))
        }
    }
}

/// How an output is compressed.
fn compression_of(output: &crate::config::Output) -> Compression {
    match output.compression {
        Some(crate::config::Compression::Zlib) => Compression::Zlib,
        Some(crate::config::Compression::Zstd) | None => Compression::Zstd(QCOW2_LEVEL),
    }
}

/// The format of the definition as the one that is written.
pub fn image_format(format: crate::config::Format) -> format::Format {
    match format {
        crate::config::Format::Raw => format::Format::Raw,
        crate::config::Format::Qcow2 => format::Format::Qcow2,
        crate::config::Format::Iso => format::Format::Iso,
    }
}
