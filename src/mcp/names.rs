//! Names that the API takes for tools of many servers.

use std::collections::{BTreeMap, BTreeSet};

/// When the name of a tool begins with that of its server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Prefix {
    /// Always. A name then does not depend on which other servers there are.
    Always,
    /// Never. Names that meet get a suffix that is made of the names of server and tool.
    Never,
    /// For all tools whose names would be the same otherwise, or that of a native tool.
    #[default]
    OnCollision,
}

/// The name that a tool got.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Assigned {
    pub(super) name: String,
    /// True if characters of the tool's own name were replaced.
    pub(super) replaced: bool,
    pub(super) shortened: bool,
    pub(super) cause: Cause,
}

/// Why a name is not the tool's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    None,
    Policy,
    Collision,
    Native,
}

/// One tool that needs a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Wanted<'a> {
    pub(super) server: &'a str,
    pub(super) tool: &'a str,
}

/// Names for tools, each of which is listed once. `None` for a tool that can have none.
///
/// What a tool is called depends on which other tools there are, and not on their order: where
/// names meet, those in the plainest form move on to the next one, all of them at once. The forms
/// are the plain name, that with the server before it, that with a short hash behind it, and that
/// with a long one. A tool whose server has [`Prefix::Never`] moves only if no other can.
pub(super) fn assign(
    tools: &[Wanted<'_>],
    prefix: impl Fn(&str) -> Prefix,
    native: &BTreeSet<String>,
) -> Vec<Option<Assigned>> {
    let mut forms: Vec<(Form, Cause)> = tools
        .iter()
        .map(|tool| match prefix(tool.server) {
            Prefix::Always => (Form::Prefixed, Cause::Policy),
            Prefix::Never | Prefix::OnCollision => (Form::Plain, Cause::None),
        })
        .collect();
    let name = |at: usize, form: Form| {
        let tool: Wanted<'_> = tools[at];
        compose(tool, form, prefix(tool.server) != Prefix::Never)
    };
    let rank =
        |at: &usize, forms: &[(Form, Cause)]| (forms[*at].0, prefix(tools[*at].server) == Prefix::Never);
    loop {
        let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (at, (form, _)) in forms.iter().enumerate() {
            groups.entry(name(at, *form).0).or_default().push(at);
        }
        let mut moved = false;
        for (name, group) in groups {
            let cause = match (native.contains(&name), group.len()) {
                (true, _) => Cause::Native,
                (false, 0 | 1) => continue,
                (false, _) => Cause::Collision,
            };
            // A name that was made on purpose stays where a plain one can give way.
            let lowest = group.iter().map(|at| rank(at, &forms)).min();
            for at in group {
                if cause == Cause::Collision && Some(rank(&at, &forms)) != lowest {
                    continue;
                }
                let (form, why) = &mut forms[at];
                if let Some(next) = form.next(prefix(tools[at].server)) {
                    (*form, *why) = (next, cause);
                    moved = true;
                }
            }
        }
        if !moved {
            break;
        }
    }
    // What still meets has equal hashes of 64 bits, or the name of a native tool: one at most is
    // kept, and which one does not depend on the order.
    let mut owners: BTreeMap<String, usize> = BTreeMap::new();
    for (at, (form, _)) in forms.iter().enumerate() {
        let owner = owners.entry(name(at, *form).0).or_insert(at);
        if tools[at] < tools[*owner] {
            *owner = at;
        }
    }
    forms
        .iter()
        .enumerate()
        .map(|(at, (form, cause))| {
            let (name, shortened) = name(at, *form);
            let is_free = owners.get(&name) == Some(&at) && !native.contains(&name);
            let replaced = legal(tools[at].tool) != tools[at].tool;
            is_free.then_some(Assigned { name, replaced, shortened, cause: *cause })
        })
        .collect()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Form {
    Plain,
    Prefixed,
    ShortHash,
    LongHash,
}

impl Form {
    fn next(self, prefix: Prefix) -> Option<Self> {
        match self {
            Self::Plain if prefix == Prefix::Never => Some(Self::ShortHash),
            Self::Plain => Some(Self::Prefixed),
            Self::Prefixed => Some(Self::ShortHash),
            Self::ShortHash => Some(Self::LongHash),
            Self::LongHash => None,
        }
    }
}

/// A name in one of its forms, and whether it had to be shortened.
fn compose(tool: Wanted<'_>, form: Form, prefixed: bool) -> (String, bool) {
    let own = legal(tool.tool);
    let hash = match form {
        // Equal names are to meet here, however long they are.
        Form::Plain => hash(&[tool.tool]),
        _ => hash(&[tool.server, tool.tool]),
    };
    let short = format!("_{:08x}", (hash >> 32) ^ (hash & 0xffff_ffff));
    let full = match form {
        Form::Plain => own.clone(),
        _ if !prefixed => own.clone(),
        _ => format!("{}{SEPARATOR}{own}", legal(tool.server)),
    };
    let suffix = match form {
        Form::Plain | Form::Prefixed if full.len() <= MAX_NAME => return (full, false),
        Form::Plain | Form::Prefixed | Form::ShortHash => short,
        Form::LongHash => format!("_{hash:016x}"),
    };
    let room = MAX_NAME - suffix.len();
    if full.len() <= room {
        return (full + &suffix, false);
    }
    let mut name = match form {
        Form::Plain => own,
        _ if !prefixed => own,
        // A long server must not push the tool out.
        _ => {
            let mut server = legal(tool.server);
            server.truncate(MAX_SERVER.max(room.saturating_sub(SEPARATOR.len() + own.len())));
            format!("{server}{SEPARATOR}{own}")
        }
    };
    name.truncate(room);
    (name + &suffix, true)
}

/// A text in the characters that the API takes, one for one.
fn legal(text: &str) -> String {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    text.chars().map(|letter| if fits(letter) { letter } else { '_' }).collect()
}

/// FNV-1a of 64 bits over the parts, each ended by a byte that no text holds. The standard
/// library's hashes may change with its version; these names have to outlive a conversation.
fn hash(parts: &[&str]) -> u64 {
    let bytes = parts.iter().flat_map(|part| part.bytes().chain([0xff]));
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The longest name that is made here. The API takes 128 characters by one account and 64 by
/// another, so this fits both.
pub const MAX_NAME: usize = 64;

const SEPARATOR: &str = "__";

/// How much of a server's name stays in a name that is too long.
const MAX_SERVER: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn named(prefix: Prefix, native: &[&str], tools: &[(&str, &str)]) -> Vec<String> {
        let native = native.iter().map(|name| (*name).to_owned()).collect();
        let tools: Vec<_> = tools.iter().map(|(server, tool)| Wanted { server, tool }).collect();
        let names = assign(&tools, |_| prefix, &native);
        names.into_iter().map(|name| name.map_or_else(|| "-".to_owned(), |name| name.name)).collect()
    }

    #[test]
    fn m02_each_policy_names_as_it_says() {
        use Prefix::{Always, Never, OnCollision};
        let two = [("a", "search"), ("b", "search"), ("b", "read")];
        for (prefix, native, tools, names) in [
            (Always, &[][..], &two[..], &["a__search", "b__search", "b__read"][..]),
            (OnCollision, &[], &two, &["a__search", "b__search", "read"]),
            (Never, &[], &two, &["search_a3287c61", "search_3a8f11f6", "read"]),
            (OnCollision, &["read"], &two, &["a__search", "b__search", "b__read"]),
            (OnCollision, &["search", "a__search"], &two, &["a__search_a3287c61", "b__search", "read"]),
            (Never, &["read"], &two[2..], &["read_b296a5ef"]),
            (OnCollision, &[], &[("f", "files.v2/read")], &["files_v2_read"]),
            (OnCollision, &[], &[("f", "a.b"), ("f", "a/b")], &["f__a_b_3a7e6a8a", "f__a_b_2a48d7d9"]),
            (Always, &[], &[("my server", "日本")], &["my_server____"]),
            // A name that another tool's prefix makes is no safer than an equal one.
            (OnCollision, &[], &[("a", "x"), ("b", "x"), ("c", "a__x")], &["a__x", "b__x", "c__a__x"]),
        ] {
            assert_eq!(named(prefix, native, tools), names, "{prefix:?} {native:?}");
        }
    }
    #[test]
    fn m02_long_names_are_cut_and_keep_apart() {
        let long = "x".repeat(100);
        let other = format!("{long}y");
        let server = "s".repeat(100);
        let fits = "x".repeat(64);
        let names = named(Prefix::OnCollision, &[], &[("a", &long), ("a", &other), ("a", &fits)]);
        assert!(names[0] != names[1] && names[0].len() == 64 && names[1].len() == 64, "{names:?}");
        assert_eq!(names[2], fits, "64 characters are not too long");
        // Equal ones meet before they are cut, so the server is told apart by name.
        let names =
            named(Prefix::OnCollision, &[], &[("a", &long), ("b", &long), (&server, "read"), ("b", "read")]);
        assert!(names[0].starts_with("a__xxx") && names[1].starts_with("b__xxx"), "{names:?}");
        assert!(
            names[2].starts_with("sss") && names[2].contains("s__read_"),
            "the tool is not pushed out: {names:?}"
        );
        assert!(names.iter().all(|name| name.len() <= MAX_NAME));
    }

    #[test]
    fn m02_names_do_not_depend_on_the_order() {
        let mut tools = vec![
            ("a", "x"),
            ("b", "x"),
            ("c", "a__x"),
            ("c", "x.y"),
            ("c", "x/y"),
            ("d", "native"),
            ("e", "é"),
        ];
        let mut seen = BTreeSet::new();
        for _ in 0..tools.len() {
            tools.rotate_left(1);
            for reversed in [false, true] {
                let mut tools = tools.clone();
                if reversed {
                    tools.reverse();
                }
                for prefix in [Prefix::Always, Prefix::Never, Prefix::OnCollision] {
                    let names = named(prefix, &["native"], &tools);
                    let pairs: BTreeSet<_> = tools.iter().copied().zip(names).collect();
                    seen.insert((format!("{prefix:?}"), pairs));
                }
            }
        }
        assert_eq!(seen.len(), 3, "one set of names for each policy");
    }

    /// The hash stands in conversations that are stored, so it never changes.
    #[test]
    fn m02_the_hash_is_fnv_1a() {
        for (parts, expected) in HASHES {
            assert_eq!(hash(parts), *expected, "{parts:?}");
        }
    }

    /// Made with another implementation.
    const HASHES: &[(&[&str], u64)] = &[
        (&[], 0xcbf29ce484222325),
        (&["search"], 0x1cee3ac827a47862),
        (&["a", "search"], 0x502f723ff3070e5e),
        (&["as", "earch"], 0x8d23256e426305c6),
        (&["文", "é"], 0xb83f1b40a228abfc),
    ];
}
