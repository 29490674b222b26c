//! The evaluator of the catalog over a tablet in memory.

use super::*;
use diorite_base::mutation::{EvaluationContext, EvaluationFailed, Evaluator, TabletChanges, TabletView};

#[derive(Default)]
struct Tablet(BTreeMap<Vec<u8>, Vec<u8>>);

impl TabletView for Tablet {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EvaluationFailed> {
        Ok(self.0.get(key).cloned())
    }

    fn scan(&self, _: &[u8], _: &[u8], _: &mut dyn FnMut(&[u8], &[u8]) -> bool) -> Result<(), EvaluationFailed> {
        Ok(())
    }
}

impl TabletChanges for Tablet {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        self.0.insert(key.to_vec(), value.to_vec());
    }

    fn merge(&mut self, _: &[u8], _: &[u8]) {
        panic!("the catalog writes whole values");
    }

    fn delete(&mut self, key: &[u8]) {
        self.0.remove(key);
    }

    fn delete_range(&mut self, _: &[u8], _: &[u8]) {
        panic!("the catalog removes single keys");
    }

    fn raise_flags(&mut self, _: u64) {}

    fn raise_stamps(&mut self, _: i64, _: i64) {}
}

/// What a program that knows these levels does with a command.
pub(super) fn evaluated(catalog: &Catalog, known: Levels, command: &Command) -> Result<Outcome, EvaluationFailed> {
    let evaluator = CatalogEvaluator::new(catalog.clone(), |_: &Arc<Catalog>| {}).knowing(known);
    let context = EvaluationContext::new(1, i64::MIN);
    let reply = evaluator.evaluate(&command.encode(), context, &Tablet::default(), &mut Tablet::default())?;
    Ok(Outcome::decode(&reply).unwrap())
}

#[test]
fn the_evaluator_stores_publishes_tells_and_replies() {
    let notified = Arc::new(Mutex::new(Vec::new()));
    let listener = {
        let notified = notified.clone();
        move |catalog: &Arc<Catalog>| notified.lock().unwrap().push(catalog.version())
    };
    let evaluator = CatalogEvaluator::new(Catalog::default(), listener);
    let context = EvaluationContext::new(1, i64::MIN);
    let mut tablet = Tablet::default();
    for line in ["bootstrap demo", "register a", "create-keyspace ks", "create-keyspace ks", "create-table ks.t"] {
        let program = parse(&evaluator.current(), line).encode();
        let reply = evaluator.evaluate(&program, context, &Tablet::default(), &mut tablet).unwrap();
        Outcome::decode(&reply).unwrap();
    }
    assert_eq!(evaluator.current().version(), 4);
    assert_eq!(Catalog::load(tablet.0.iter()).unwrap(), *evaluator.current());
    assert_eq!(*notified.lock().unwrap(), [1, 2, 3, 4]);

    // After a crash, a new evaluator starts from the stored keys.
    let again = CatalogEvaluator::new(Catalog::default(), |_: &Arc<Catalog>| {});
    assert_eq!(again.reload(tablet.0.iter()).unwrap(), evaluator.current());

    let mut untouched = Tablet::default();
    let reply = again.evaluate(b"rubbish", context, &Tablet::default(), &mut untouched).unwrap();
    assert!(matches!(Outcome::decode(&reply).unwrap(), Outcome::Rejected { rejection: Rejection::Invalid, .. }));
    assert!(untouched.0.is_empty());
    let newer = again.evaluate(br#"{"v":9,"command":{}}"#, context, &Tablet::default(), &mut untouched);
    assert!(newer.unwrap_err().to_string().contains("format 9"));
}
