//! The server goes and comes back.

use crate::help::{NOTHING, answers, back, lost, own_cluster, place_on, quit};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

#[test]
fn restarts_and_a_crash_are_outlived() {
    let cluster = own_cluster(&[]);
    let place = place_on(&cluster);
    place.sql("CHECKPOINT");
    // the queue half waits for this lock, so that the server goes down within the first look
    let (client, runtime) = place.client();
    runtime.block_on(async {
        let lock = "BEGIN; LOCK TABLE agent_queue.tasks IN ACCESS EXCLUSIVE MODE";
        client.batch_execute(lock).await.expect("locked");
    });
    let mut pty = place.watch(&["--allow-writes"], 160, 45);
    pty.wait_text("CONN");
    cluster.restart(true).expect("restarted");
    let said = "no verdict yet, then the database half";
    back(
        &pty,
        "immediate restart at the first look",
        said,
        Instant::now(),
        "nothing was known yet",
    );
    drop(client);

    for (immediate, fault) in [(false, "fast restart"), (true, "immediate restart")] {
        place.sql("CHECKPOINT");
        cluster.down(immediate).expect("down");
        let said = lost(&pty);
        answers(&mut pty);
        pty.wait_text("tries, one a second");
        pty.keys("6R");
        pty.wait_text("requeue is off: no connection");
        pty.keys("0");
        let begun = Instant::now();
        cluster.up().expect("up");
        // said until a key, and once
        pty.wait_text("s: the server was restarted");
        back(&pty, fault, &said, begun, NOTHING);
        // a retry every 0.8 s, a second at most
        assert!(
            begun.elapsed() < Duration::from_secs(5 * 2),
            "it came back late"
        );
    }
    // the server ends all sessions and recovers when one of its processes is killed
    let (client, runtime) = place.client();
    let pid = runtime.block_on(async {
        let row = client.query_one("SELECT pg_backend_pid()", &[]).await;
        row.expect("a pid").get::<_, i32>(0)
    });
    let begun = Instant::now();
    kill(Pid::from_raw(pid), Signal::SIGKILL).expect("killed");
    let said = lost(&pty);
    back(&pty, "kill -9 of a backend", &said, begun, NOTHING);
    answers(&mut pty);
    // q works without a server
    place.sql("CHECKPOINT");
    cluster.down(true).expect("down");
    lost(&pty);
    quit(&mut pty);
    cluster.up().expect("up");
    place.wait_no_session();
}
