//! An import that streams: its session stays active for as long as the file comes, row by row, and costs next to
//! nothing while it waits for the next one.

use std::pin::pin;

use futures_util::SinkExt;
use tokio::time::sleep;

use super::dice::Dice;
use super::link::{Link, seconds};
use super::world::World;

/// Streams rows until the world says that it is enough, or somebody ends the session.
pub async fn stream(world: &World, link: &Link, dice: &mut Dice) {
    let copy = link
        .client()
        .copy_in::<_, std::io::Cursor<Vec<u8>>>("COPY public.import_rows (line) FROM STDIN");
    let sink = match copy.await {
        Ok(sink) => sink,
        Err(error) => return world.fault("importer", &error.into()),
    };
    let mut sink = pin!(sink);
    while world.now().copying && !link.ended() {
        let line = format!("{:016x}\n", dice.bits()).into_bytes();
        if sink.send(std::io::Cursor::new(line)).await.is_err() {
            return;
        }
        sleep(seconds(dice.between(0.3, 0.8))).await;
    }
    let _ = sink.finish().await;
}
