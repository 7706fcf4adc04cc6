//! Reads the leases of DHCP.

use jiff::Timestamp;

use super::controller::Controller;
use super::decide::Leases;
use crate::provisioning::segment::leases;

impl Controller {
    /// All leases that DHCP's files have now.
    pub(super) fn leases(&self) -> Leases {
        let texts = self.common.leases.iter().filter_map(|path| fs_err::read_to_string(path).ok());
        Leases { all: texts.flat_map(|text| leases::read(&text)).collect(), now: Timestamp::now() }
    }
}
