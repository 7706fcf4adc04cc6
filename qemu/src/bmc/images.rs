//! Images that go into a drive.

use std::path::PathBuf;

use fs_err::tokio::File;
use tokio::io::AsyncWriteExt as _;

/// What becomes of the URL of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Images {
    /// It is only remembered.
    Named,
    /// It is fetched into a file in this folder, which the machine gets.
    Fetched(PathBuf),
}

impl Images {
    /// The file for a drive; what is wrong, in words.
    pub(super) async fn fetch(
        &self,
        client: &reqwest::Client,
        url: &str,
        drive: usize,
    ) -> Result<Option<PathBuf>, String> {
        let Self::Fetched(dir) = self else { return Ok(None) };
        let told = |error: &dyn std::error::Error| format!("{url}: {error}");
        let mut answer = client.get(url).send().await.map_err(|error| told(&error))?;
        if !answer.status().is_success() {
            return Err(format!("{url}: {}", answer.status()));
        }
        // Another file each time: the machine may still have the last one open.
        let path = dir.join(format!("drive{drive}-{}.iso", super::change::hex(&rand::random::<[u8; 4]>())));
        let mut file = File::create(&path).await.map_err(|error| told(&error))?;
        while let Some(part) = answer.chunk().await.map_err(|error| told(&error))? {
            file.write_all(&part).await.map_err(|error| told(&error))?;
        }
        file.flush().await.map_err(|error| told(&error))?;
        Ok(Some(path))
    }
}
