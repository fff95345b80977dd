//! A server without a free slot.

use jobtop::demo::cluster::Cluster;

/// Every slot that a role may have, until dropped.
pub struct Hogs {
    held: Vec<tokio_postgres::Client>,
    _runtime: tokio::runtime::Runtime,
}

impl Hogs {
    /// Takes them.
    pub fn of(cluster: &Cluster, role: &str) -> Self {
        let runtime = tokio::runtime::Runtime::new().expect("a runtime");
        let mut config = cluster.config();
        config.user(role).application_name("hog");
        let held = runtime.block_on(async {
            let mut held = Vec::new();
            while let Ok((client, connection)) = config.connect(tokio_postgres::NoTls).await {
                tokio::spawn(connection);
                held.push(client);
            }
            held
        });
        Self {
            held,
            _runtime: runtime,
        }
    }

    /// How many those are.
    pub fn len(&self) -> usize {
        self.held.len()
    }
}
