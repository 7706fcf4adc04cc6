//! One step of a turn after the other, and the status when a step cannot be done.

use agent_api::vino::spec::Vino;

use super::controller::Controller;
use super::tell::{Part, Told};
use crate::operators::kit::{Object as _, ObjectError};
use crate::steps::chain;

impl Controller {
    /// Brings everything up to date, as far as that is possible now. A turn never waits: a change of what is missing starts
    /// another turn.
    pub(super) async fn conclude(&self, object: &Vino) -> Result<(), ObjectError> {
        let mut told = Told::default();
        let done = Box::pin(self.steps(object, &mut told)).await;
        match done {
            Ok(()) => self.failures.none(&object.key()),
            Err(error) if error.is_stale() || error.is_gone() => return Err(error),
            Err(error) => {
                // The API server refused something: that is the object's matter, and is tried again.
                self.failures.one_more(object);
                told.fail(&chain(&error));
                self.tell(object, told).await?;
                return Err(error);
            }
        }
        self.tell(object, told).await
    }

    async fn steps(&self, object: &Vino, told: &mut Told) -> Result<(), ObjectError> {
        let given = match self.given(object).await? {
            Ok(given) => given,
            Err(why) => {
                told.config_map = Part::Fails(why);
                return Ok(());
            }
        };
        let shared = match self.share(object, &given).await? {
            Ok(shared) => shared,
            Err(why) => {
                told.config_map = Part::Fails(why);
                return Ok(());
            }
        };
        told.config_map = Part::Done("flavours and templates are right".to_owned());
        told.has_templates = shared.templates.is_some();
        told.daemon_set = shared.pods.clone();
        let hosts = self.hosts(object).await?;
        let nodes = self.nodes(object, &hosts).await?;
        let made = Box::pin(self.machines(object, &given, &shared, &nodes, &hosts)).await?;
        told.nodes = made.nodes;
        told.has = made.has;
        told.wanted = made.wanted;
        told.hosts = match (made.wrong.is_empty(), made.waits.is_empty()) {
            (false, _) => Part::Fails([made.wrong, made.waits].concat().join("\n")),
            (true, false) => Part::Waits(made.waits.join("\n")),
            (true, true) => Part::Done(format!("{} hosts are there", told.has)),
        };
        Ok(())
    }
}
