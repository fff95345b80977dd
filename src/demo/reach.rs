//! Binaries that the server's user cannot reach are brought to where it can.
//!
//! Root's own files usually lie below `/root`, which nobody else may enter: a server that was fetched
//! by root, or installed by root's `pip`, would be denied to the user that we become.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// Gives the installation that `bin` belongs to a second place below `to`; its `bin` there.
///
/// Files are linked where that is possible, so that it takes milliseconds and no space.
pub fn bring(bin: &Path, to: &Path) -> io::Result<PathBuf> {
    let outside = || {
        io::Error::other(format!(
            "{} is not inside of an installation",
            bin.display()
        ))
    };
    let prefix = bin.parent().ok_or_else(outside)?;
    let (Some(bin_name), Some(prefix_name), Some(above)) =
        (bin.file_name(), prefix.file_name(), prefix.parent())
    else {
        return Err(outside());
    };
    // A wheel keeps the libraries of package/prefix/bin in package.libs.
    let package = above.file_name().unwrap_or(prefix_name);
    let mut libraries = package.to_owned();
    libraries.push(".libs");
    let new_prefix = to.join(package).join(prefix_name);
    tree(prefix, &new_prefix)?;
    if let Some(beside) = above
        .parent()
        .map(|dir| dir.join(&libraries))
        .filter(|dir| dir.is_dir())
    {
        tree(&beside, &to.join(&libraries))?;
    }
    Ok(new_prefix.join(bin_name))
}

fn tree(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o755).create(to)?;
    std::fs::set_permissions(to, Permissions::from_mode(0o755))?;
    for entry in std::fs::read_dir(from)? {
        let entry = entry?;
        let (kind, from, to) = (entry.file_type()?, entry.path(), to.join(entry.file_name()));
        if kind.is_dir() {
            tree(&from, &to)?;
        } else if kind.is_symlink() {
            symlink(std::fs::read_link(&from)?, &to)?;
        } else if kind.is_file() {
            file(&from, &to)?;
        }
    }
    Ok(())
}

fn file(from: &Path, to: &Path) -> io::Result<()> {
    let mode = std::fs::metadata(from)?.permissions().mode();
    let wanted = if mode & 0o100 == 0 { 0o644 } else { 0o755 };
    // A link shares the mode, which is not ours to change.
    if mode & wanted == wanted && std::fs::hard_link(from, to).is_ok() {
        return Ok(());
    }
    std::fs::copy(from, to)?;
    std::fs::set_permissions(to, Permissions::from_mode(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wheel_keeps_its_libraries_beside_it_and_private_files_become_readable() -> io::Result<()> {
        let base = std::env::temp_dir().join(format!("reach-{}", std::process::id()));
        let (from, to) = (base.join("from"), base.join("to"));
        std::fs::create_dir_all(from.join("pg/inst/bin"))?;
        std::fs::create_dir_all(from.join("pg.libs"))?;
        std::fs::write(from.join("pg/inst/bin/initdb"), "a")?;
        std::fs::set_permissions(
            from.join("pg/inst/bin/initdb"),
            Permissions::from_mode(0o700),
        )?;
        std::fs::write(from.join("pg.libs/libpq.so.5.18"), "b")?;
        symlink("libpq.so.5.18", from.join("pg.libs/libpq.so.5"))?;
        std::fs::create_dir(&to)?;

        let bin = bring(&from.join("pg/inst/bin"), &to)?;

        let mode =
            |path: &Path| std::fs::metadata(path).map(|meta| meta.permissions().mode() & 0o777);
        assert_eq!(bin, to.join("pg/inst/bin"));
        assert_eq!(mode(&bin.join("initdb"))?, 0o755);
        assert_eq!(mode(&from.join("pg/inst/bin/initdb"))?, 0o700);
        assert_eq!(std::fs::read_to_string(to.join("pg.libs/libpq.so.5"))?, "b");
        std::fs::remove_dir_all(&base)
    }
}
