//! Streams that never pause, and readers that block their thread: on the real clock, with short limits.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use agentloop::client::Auth;
use agentloop::run_loop::RunErrorKind;
use agentloop::{CancellationToken, Client, ErrorKind, MessageRequest, ToolRunner};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::{Way, begin, close, end, hello, in_time, ping, stop, text, text_block, wire};

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// A server of one connection on a thread of its own, and a client of it.
fn serve(answer: impl FnOnce(TcpStream) + Send + 'static) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        let mut request = Vec::new();
        let mut buffer = [0; 1024];
        while !request.windows(4).any(|end| end == b"\r\n\r\n") {
            let read = socket.read(&mut buffer).unwrap();
            request.extend_from_slice(&buffer[..read]);
        }
        answer(socket);
    });
    Client::builder().base_url(url).auth(Auth::None).no_proxy().max_retries(0).build().unwrap()
}

fn write(mut socket: &TcpStream, text: &str) -> bool {
    socket.write_all(text.as_bytes()).is_ok()
}

/// A client of a server that goes on for as long as somebody listens.
fn flooded(before: &[Value], more: &Value) -> (Client, mpsc::Receiver<()>) {
    let (sender, hung_up) = mpsc::channel();
    let (before, more) = (wire(before), wire(&vec![more.clone(); 100]));
    let client = serve(move |socket| {
        write(&socket, &format!("{HEAD}{before}"));
        while write(&socket, &more) {}
        sender.send(()).unwrap();
    });
    (client, hung_up)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_total_limit_ends_a_stream_that_always_has_more() {
    let request = MessageRequest::from("Hello").timeout(Duration::from_millis(300));
    for (before, more) in [(vec![begin(), text_block(0)], text(0, "x")), (vec![], ping())] {
        for way in Way::ALL {
            let (client, hung_up) = flooded(&before, &more);
            let error = in_time(way.ask(&client, &request)).await.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
            assert!(error.to_string().contains("as a whole"), "{error}");
            hung_up.recv_timeout(Duration::from_secs(60)).expect("the connection should be closed");
        }
    }
}

/// Without a limit of its own, a stream leaves its thread to others all the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_always_has_more_can_be_given_up_from_outside() {
    for (before, more) in [(vec![begin(), text_block(0)], text(0, "x")), (vec![], ping())] {
        for way in Way::ALL {
            let (client, hung_up) = flooded(&before, &more);
            let given_up = tokio::time::timeout(Duration::from_millis(300), way.ask(&client, &hello())).await;
            assert!(given_up.is_err());
            hung_up.recv_timeout(Duration::from_secs(60)).expect("the connection should be closed");
        }
        let (client, hung_up) = flooded(&before, &more);
        let token = CancellationToken::new();
        let runner = ToolRunner::new().cancel(token.clone()).on_event(|_| {});
        let cancel = async {
            sleep(Duration::from_millis(300)).await;
            token.cancel();
        };
        let (outcome, ()) = in_time(async { tokio::join!(runner.run(&client, "Hello"), cancel) }).await;
        assert_eq!(outcome.unwrap_err().kind(), RunErrorKind::Cancelled);
        hung_up.recv_timeout(Duration::from_secs(60)).expect("the connection should be closed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_total_limit_ends_it_also_for_a_reader_that_lags_behind() {
    let (client, hung_up) = flooded(&[begin(), text_block(0)], &text(0, "x"));
    let request = MessageRequest::from("Hello").timeout(Duration::from_millis(300));
    let error = in_time(async {
        let mut stream = client.stream(&request).await.unwrap();
        loop {
            if let Err(error) = stream.next().await.expect("an endless stream") {
                break error;
            }
            sleep(Duration::from_millis(1)).await;
        }
    })
    .await;
    assert_eq!(error.kind(), ErrorKind::Timeout, "{error:?}");
    assert!(error.to_string().contains("as a whole"), "{error}");
    assert!(!error.partial_message().unwrap().text().is_empty());
    hung_up.recv_timeout(Duration::from_secs(60)).expect("the connection should be closed");
}

#[tokio::test]
async fn a_reader_that_blocked_its_thread_gets_what_came_meanwhile() {
    let (go, gone) = mpsc::channel();
    let (sent, arrived) = mpsc::channel();
    let client = serve(move |socket| {
        write(&socket, &format!("{HEAD}{}", wire(&[begin(), text_block(0)])));
        gone.recv().unwrap();
        write(&socket, &wire(&[text(0, "late"), close(0), end("end_turn"), stop()]));
        sent.send(()).unwrap();
    });
    let limit = Duration::from_millis(500);
    let mut stream = client.stream(&hello().idle_timeout(limit)).await.unwrap();
    for _ in 0..2 {
        stream.next().await.unwrap().unwrap();
    }
    // It asks for the next event and blocks before that comes: nobody could read it.
    tokio::select! {
        biased;
        event = stream.next() => panic!("{event:?}"),
        () = tokio::task::yield_now() => {}
    }
    go.send(()).unwrap();
    arrived.recv().unwrap();
    std::thread::sleep(limit * 3);
    assert_eq!(stream.final_message().await.unwrap().text(), "late");
}

/// From the server's side: its writes block.
#[tokio::test]
async fn what_nobody_asks_for_stays_with_the_server() {
    const ALL: usize = 256 << 20;
    let (sender, blocked) = oneshot::channel();
    let client = serve(move |socket| {
        socket.set_write_timeout(Some(Duration::from_secs(2))).unwrap();
        let more = wire(&vec![text(0, "x"); 1000]);
        write(&socket, &format!("{HEAD}{}", wire(&[begin(), text_block(0)])));
        let mut written = 0;
        while written < ALL && write(&socket, &more) {
            written += more.len();
        }
        sender.send(written).unwrap();
    });
    let mut stream = client.stream(&hello()).await.unwrap();
    for _ in 0..3 {
        stream.next().await.unwrap().unwrap();
    }
    let written = in_time(blocked).await.unwrap();
    println!("{written} bytes were taken");
    assert!(written < ALL / 4, "{written}");
    assert_eq!(stream.snapshot().unwrap().text(), "x");
}
