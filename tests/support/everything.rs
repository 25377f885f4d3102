//! A subscriber that writes down all that any crate tells.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Writes every field of every event and span down.
#[derive(Clone, Default)]
pub(crate) struct Everything(Arc<Mutex<String>>);

impl Everything {
    /// Takes effect in this thread until the guards are dropped.
    pub(crate) fn install(&self) -> (tracing::Dispatch, tracing::subscriber::DefaultGuard) {
        // While there is but one dispatcher, other tests' threads decide for it and switch events off.
        (tracing::Dispatch::new(self.clone()), tracing::subscriber::set_default(self.clone()))
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

/// What reaches the `log` crate, which some crates below use: of all threads of the process.
#[derive(Default)]
pub(crate) struct Logged(Mutex<String>);

impl Logged {
    /// Takes effect for the rest of the process.
    pub(crate) fn install() -> &'static Self {
        static LOGGED: Logged = Logged(Mutex::new(String::new()));
        if log::set_logger(&LOGGED).is_ok() {
            log::set_max_level(log::LevelFilter::Trace);
        }
        &LOGGED
    }

    pub(crate) fn text(&self) -> String {
        self.0.lock().unwrap().clone()
    }
}

impl log::Log for Logged {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        writeln!(self.0.lock().unwrap(), "{}: {}", record.target(), record.args()).unwrap();
    }

    fn flush(&self) {}
}

impl Visit for Everything {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        writeln!(self.0.lock().unwrap(), "{field}={value:?}").unwrap();
    }
}

impl Subscriber for Everything {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }
    fn new_span(&self, span: &Attributes<'_>) -> Id {
        span.record(&mut self.clone());
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, values: &Record<'_>) {
        values.record(&mut self.clone());
    }
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
