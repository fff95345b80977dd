//! Who sits where.

/// The person at the keyboard, as this machine knows them.
pub fn person() -> String {
    let uid = nix::unistd::getuid();
    let user = nix::unistd::User::from_uid(uid).ok().flatten();
    let login = std::env::var("SUDO_USER").ok().filter(|u| !u.is_empty());
    login
        .or(user.map(|u| u.name))
        .unwrap_or_else(|| uid.to_string())
}

/// This machine's own name.
pub fn host() -> Option<String> {
    let name = nix::unistd::gethostname().ok()?;
    Some(name.to_string_lossy().into_owned())
}
