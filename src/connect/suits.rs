//! Is a server as `target_session_attrs` wants it?

use super::Fault;
use super::attempt::{Miss, silent};
use super::open::Opened;
use super::target::Attrs;
use tokio_postgres::SimpleQueryMessage;

/// The connection, if so.
pub async fn suits(attrs: Attrs, mut opened: Opened) -> Result<Opened, Miss> {
    let (question, wanted, otherwise) = match attrs {
        Attrs::Any | Attrs::PreferStandby => return Ok(opened),
        Attrs::Primary => ("SELECT pg_is_in_recovery()", false, "it is a standby"),
        Attrs::Standby => ("SELECT pg_is_in_recovery()", true, "it is no standby"),
        Attrs::ReadWrite => ("SHOW transaction_read_only", false, "it is read-only"),
        Attrs::ReadOnly => ("SHOW transaction_read_only", true, "it is not read-only"),
    };
    let answer = tokio::select! {
        answer = opened.client.simple_query(question) => answer.map_err(Fault::from),
        end = &mut opened.line => Err(end.map_or_else(Fault::from, |()| silent())),
    };
    let answer = answer.map_err(|fault| Miss { fault, next: true })?;
    let yes = answer.iter().any(|message| match message {
        SimpleQueryMessage::Row(row) => matches!(row.get(0), Some("t" | "on")),
        _ => false,
    });
    match yes == wanted {
        true => Ok(opened),
        false => Err(Miss {
            fault: Fault::own(format!(
                "{otherwise}, and target_session_attrs asks for another"
            )),
            next: true,
        }),
    }
}
