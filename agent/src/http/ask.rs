//! Asking a server of this box whether it really answers.

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, header};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// An answer begins within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Status of the answer to a GET of the first byte at `path`.
pub async fn ask(address: SocketAddr, path: &str) -> anyhow::Result<u16> {
    let asked = async {
        let stream = TcpStream::connect(address).await?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let request = Request::get(path).header(header::HOST, address.to_string()).header(header::RANGE, "bytes=0-0");
        let request = request.header(header::CONNECTION, "close").body(Body::empty())?;
        let mut connection = Box::pin(connection);
        tokio::select! {
            answer = sender.send_request(request) => Ok(answer?.status().as_u16()),
            ended = &mut connection => anyhow::bail!("the connection was closed: {ended:?}"),
        }
    };
    timeout(PATIENCE, asked).await?
}
