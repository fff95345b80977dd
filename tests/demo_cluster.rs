//! The private Postgres: it serves, and it leaves nothing behind however its program ends.

mod common;

use tokio_postgres::SimpleQueryMessage;

async fn ask(config: &tokio_postgres::Config, sql: &str) -> String {
    let client = common::connect(config).await;
    let rows = client.simple_query(sql).await.expect(sql);
    let row = rows.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => Some(row.get(0).expect("a value").to_owned()),
        _ => None,
    });
    row.expect("a row")
}

#[tokio::test]
async fn a_database_of_ones_own_is_served_on_a_socket_only() {
    let (name, config) = common::database("serves");
    assert_eq!(ask(&config, "SELECT current_database()").await, name);
    assert_eq!(ask(&config, "SHOW listen_addresses").await, "");
    assert_eq!(ask(&config, "SHOW max_connections").await, "100");
    assert_eq!(ask(&config, "SHOW timezone").await, "UTC");
}
