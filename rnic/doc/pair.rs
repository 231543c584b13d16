// Two QPs that are connected over loopback, for examples in the documentation.

use std::error::Error;
use std::time::Duration;

use rddp_rnic::{CompletionQueue, ConnectOptions, ProtectionDomain, QpConfig, QueuePair, Rnic};

pub struct End {
    pub rnic: Rnic,
    pub pd: ProtectionDomain,
    pub cq: CompletionQueue,
    pub qp: QueuePair,
}

impl End {
    fn new() -> Result<Self, rddp_rnic::Error> {
        let rnic = Rnic::open()?;
        let (pd, cq) = (rnic.alloc_pd(), rnic.create_cq(64)?);
        let qp = pd.create_qp(&QpConfig::new(&cq))?;
        Ok(End { rnic, pd, cq, qp })
    }
}

pub fn pair() -> Result<(End, End), Box<dyn Error>> {
    let (active, passive, options) = (End::new()?, End::new()?, ConnectOptions::default());
    let listener = passive.rnic.listen("127.0.0.1:0".parse()?, &options)?;
    active.qp.begin_to(listener.local_addr()?, &options)?;
    let request = listener.accept(Some(Duration::from_secs(5)))?.ok_or("nobody came")?;
    request.accept(&passive.qp, b"")?;
    active.qp.await_begun(Duration::from_secs(5));
    active.qp.begun().ok_or("not connected in time")??;
    Ok((active, passive))
}
