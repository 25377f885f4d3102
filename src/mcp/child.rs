//! Servers that are processes of ours.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use process_wrap::tokio::{ChildWrapper, CommandWrap};
use tokio::process::{ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connection::GRACE;

/// A process group. Dropping it kills the group.
pub(super) struct Child {
    group: Arc<Mutex<Group>>,
    /// Ends the group when the server has ended: what it started may hold its output open, and calls
    /// would wait for ever.
    _watch: JoinSet<()>,
}

struct Group {
    child: Box<dyn ChildWrapper>,
    /// The server has ended and its group was killed: its number may be another's by now.
    is_over: bool,
}

impl Child {
    pub(super) fn start(command: Command) -> io::Result<Self> {
        let mut command = CommandWrap::from(command);
        #[cfg(unix)]
        command.wrap(process_wrap::tokio::ProcessGroup::leader());
        #[cfg(windows)]
        command.wrap(process_wrap::tokio::JobObject);
        let group = Arc::new(Mutex::new(Group { child: command.spawn()?, is_over: false }));
        let mut watch = JoinSet::new();
        watch.spawn(Self::watch(Arc::downgrade(&group)));
        Ok(Self { group, _watch: watch })
    }

    async fn watch(group: Weak<Mutex<Group>>) {
        loop {
            sleep(LOOK).await;
            let Some(group) = group.upgrade() else { return };
            let mut group = lock(&group);
            if group.has_ended() {
                return group.kill();
            }
        }
    }

    pub(super) fn pipes(&self) -> Option<(ChildStdin, ChildStdout)> {
        let mut group = lock(&self.group);
        Some((group.child.stdin().take()?, group.child.stdout().take()?))
    }

    /// Waits a while for the server to end by itself, and then ends whatever is left of its group.
    pub(super) async fn end(self) {
        let ended = async {
            while !lock(&self.group).has_ended() {
                sleep(LOOK).await;
            }
        };
        if timeout(GRACE, ended).await.is_err() {
            lock(&self.group).kill();
        }
        // The drop kills the rest: what the server started may outlive it.
    }
}

impl Group {
    /// True once the server itself has ended, and is reaped.
    fn has_ended(&mut self) -> bool {
        self.is_over || !matches!(self.child.try_wait(), Ok(None))
    }

    fn kill(&mut self) {
        if !self.is_over {
            let has_ended = self.has_ended();
            // An error means that nobody is left.
            let _gone = self.child.start_kill();
            self.is_over = has_ended;
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        lock(&self.group).kill();
    }
}

fn lock(group: &Mutex<Group>) -> MutexGuard<'_, Group> {
    group.lock().unwrap_or_else(PoisonError::into_inner)
}

/// How often processes are looked at.
const LOOK: Duration = Duration::from_millis(20);
