//! The receiver on a port.

use std::time::Duration;

use athanor_chassis::TaskGroup;
use athanor_chassis::net::{LocalNet, Net};
use athanor_http_server::HttpListener;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::*;

/// Sink that stores an upload after a signal of the test.
#[derive(Default)]
struct SlowSink {
    started: Notify,
    durable: Notify,
}

#[async_trait]
impl UploadSink for SlowSink {
    async fn store(&self, _: Upload) -> Result<(), Status> {
        self.started.notify_one();
        self.durable.notified().await;
        Ok(())
    }
}

#[tokio::test]
async fn response_waits_until_the_upload_is_durable() {
    let clock = Clock::system();
    let sink = Arc::new(SlowSink::default());
    let receiver = ProfileReceiver::new(ReceiverParams {
        settings: plain_settings(),
        sink: Arc::clone(&sink) as Arc<dyn UploadSink>,
        peers: Arc::new(OnePod),
        clock: clock.clone(),
        random: Random::from_seed(1),
        compute: ComputePool::inline(),
    });
    let net = LocalNet::new(clock.clone());
    let listener = HttpListener::bind(&net, "127.0.0.1:0").await.unwrap();
    let address = listener.address();
    let stop = CancellationToken::new();
    let tasks = TaskGroup::new(clock.clone(), 10);
    let served = receiver.serve(listener, tasks, stop.clone(), CancellationToken::new());
    let client = async {
        let mut stream = net.connect(address, Duration::from_secs(10)).await.unwrap();
        let head = "POST /ingest?name=a{b=c}&from=5 HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: 3\r\n\r\n";
        stream.write_all(format!("{head}a 1").as_bytes()).await.unwrap();
        sink.started.notified().await;
        let mut first = [0; 1];
        let early = clock.timeout(Duration::from_millis(50), stream.read_exact(&mut first)).await;
        assert!(early.is_err(), "the response came before the upload was durable");
        sink.durable.notify_one();
        let mut response = String::new();
        stream.read_to_string(&mut response).await.unwrap();
        assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
        stop.cancel();
    };
    tokio::join!(served, client);
}
