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
        let mut answer = std::pin::pin!(sender.send_request(request));
        let answer = tokio::select! {
            answer = &mut answer => answer,
            // The server closes after its answer, which may have arrived although the connection has ended.
            ended = connection => {
                ended?;
                answer.await
            }
        };
        Ok(answer?.status().as_u16())
    };
    timeout(PATIENCE, asked).await?
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::ask;

    #[tokio::test]
    async fn an_answer_counts_however_soon_the_server_closes_behind_it() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let serve = async {
            loop {
                let (mut stream, _) = listener.accept().await.expect("a client");
                let mut head = [0; 1024];
                let _ = stream.read(&mut head).await;
                let answer = b"HTTP/1.1 206 Partial Content\r\ncontent-length: 1\r\nconnection: close\r\n\r\n{";
                stream.write_all(answer).await.expect("sent");
            }
        };
        let asked = async {
            for _ in 0..200 {
                assert_eq!(ask(address, "/").await.expect("an answer"), 206);
            }
        };
        tokio::select! { () = serve => {}, () = asked => {} }
    }

    #[tokio::test]
    async fn a_server_that_closes_without_a_word_is_an_error() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let close = async { drop(listener.accept().await.expect("a client")) };
        let (asked, ()) = tokio::join!(ask(address, "/"), close);
        assert!(asked.is_err());
    }
}
