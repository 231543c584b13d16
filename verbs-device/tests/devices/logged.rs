//! Events that the crate logs.

use std::fmt::{Debug, Write as _};
use std::sync::{Arc, Mutex};

use tracing::field::Field;
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};

/// Does something in this thread, and returns the events that it logs, as lines.
pub(crate) fn logged(f: impl FnOnce()) -> String {
    let lines = Arc::<Mutex<String>>::default();
    tracing::subscriber::with_default(Lines(lines.clone()), f);
    lines.lock().unwrap().clone()
}

struct Lines(Arc<Mutex<String>>);

impl Subscriber for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn event(&self, event: &tracing::Event<'_>) {
        let mut lines = self.0.lock().unwrap();
        write!(lines, "{} {}", event.metadata().level(), event.metadata().target()).unwrap();
        event.record(&mut |field: &Field, value: &dyn Debug| write!(lines, " {field}={value:?}").unwrap());
        lines.push('\n');
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
