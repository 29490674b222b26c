//! A value that conditions read, and the parts of it that they name.
//!
//! Always true: the first lookup scans the value; from the second on there is an index, so that many lookups in one large collection or document
//! cost a logarithm each. A part is a value again, and is taken out once. Left out: reading the value ([`super::stored`]).

use super::definition::{Impossible, PathStep, TestedPart};
use super::document::Document;
use crate::steps;
use crate::values::{contains, element_of, field_of, index_of};
use diorite_model::types::CqlType;
use diorite_model::value::{ValueError, collection, compare};
use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

type Paths = BTreeMap<(Vec<PathStep>, bool), Rc<StoredValue>>;

/// A stored value or a part of one; null is no bytes.
pub(super) struct StoredValue {
    data_type: CqlType,
    wire: Option<Vec<u8>>,
    /// Whether a part was asked for before, and whether elements or (`1`) keys were.
    asked: [Cell<bool>; 3],
    /// Where its elements, keys and values in turn, or fields are.
    places: OnceCell<Vec<Option<Range<usize>>>>,
    /// Indexes of elements and (`1`) of keys, sorted by their values.
    ordered: [OnceCell<Vec<usize>>; 2],
    parts: RefCell<BTreeMap<usize, Rc<StoredValue>>>,
    document: OnceCell<Result<Document, Impossible>>,
    paths: RefCell<Paths>,
}

/// Kinds of lookups.
const ELEMENT: usize = 0;
const KEY: usize = 1;
const PART: usize = 2;

impl StoredValue {
    /// The value of a column.
    pub fn new(data_type: CqlType, wire: Option<Vec<u8>>) -> Self {
        Self {
            data_type,
            wire,
            asked: Default::default(),
            places: OnceCell::new(),
            ordered: Default::default(),
            parts: RefCell::default(),
            document: OnceCell::new(),
            paths: RefCell::default(),
        }
    }

    /// Its type.
    pub fn data_type(&self) -> &CqlType {
        &self.data_type
    }

    /// Its bytes; `None` for null. A collection stored by element has no empty value: it is null instead.
    pub fn wire(&self) -> Option<&[u8]> {
        normal(&self.data_type, self.wire.as_deref())
    }

    /// The document in it.
    pub fn document(&self) -> Result<Option<&Document>, Impossible> {
        let Some(wire) = &self.wire else { return Ok(None) };
        self.document
            .get_or_init(|| {
                steps::count(wire.len());
                Document::parse(wire)
            })
            .as_ref()
            .map(Some)
            .map_err(Clone::clone)
    }

    /// A part of it.
    pub fn part(self: &Rc<Self>, part: &TestedPart) -> Result<Rc<StoredValue>, Impossible> {
        let part_type = match (part, &self.data_type) {
            (TestedPart::Whole, _) => return Ok(Rc::clone(self)),
            (TestedPart::Path(path, as_text), _) => return self.at_path(path, *as_text),
            (TestedPart::Element(_), CqlType::Map(_, element, _) | CqlType::List(element, _)) => element,
            (TestedPart::Field(index), CqlType::UserDefined(user, _)) => {
                let field = user.fields.get(usize::from(*index));
                &field.ok_or_else(|| Impossible("the condition names a field that does not exist".to_owned()))?.1
            }
            _ => return Err(Impossible("the condition does not fit the type of its column".to_owned())),
        };
        let null = || Ok(Rc::new(StoredValue::new(part_type.clone(), None)));
        let Some(wire) = &self.wire else { return null() };
        if !self.asked[PART].replace(true) {
            let found = match part {
                TestedPart::Element(key) => element_of(&self.data_type, wire, key),
                TestedPart::Field(index) => field_of(wire, *index),
                TestedPart::Whole | TestedPart::Path(..) => Ok(None),
            };
            let found = found?.map(<[u8]>::to_vec);
            return Ok(Rc::new(StoredValue::new(part_type.clone(), found)));
        }
        let at = match (part, &self.data_type) {
            (TestedPart::Element(key), CqlType::Map(key_type, ..)) => self.seek(KEY, key_type, key)?.map(|at| at + 1),
            (TestedPart::Element(index), _) => index_of(index),
            (TestedPart::Field(index), _) => Some(usize::from(*index)),
            _ => None,
        };
        let Some(at) = at else { return null() };
        if let Some(known) = self.parts.borrow().get(&at) {
            return Ok(Rc::clone(known));
        }
        let place = self.places()?.get(at).cloned().flatten();
        let found = Rc::new(StoredValue::new(part_type.clone(), place.map(|place| wire[place].to_vec())));
        self.parts.borrow_mut().insert(at, Rc::clone(&found));
        Ok(found)
    }

    fn at_path(&self, path: &[PathStep], as_text: bool) -> Result<Rc<StoredValue>, Impossible> {
        let asked = (path.to_vec(), as_text);
        if let Some(known) = self.paths.borrow().get(&asked) {
            return Ok(Rc::clone(known));
        }
        let found = self.document()?.and_then(|document| document.find(path, as_text));
        let data_type = if as_text { CqlType::Text } else { CqlType::Jsonb };
        let found = Rc::new(StoredValue::new(data_type, found));
        self.paths.borrow_mut().insert(asked, Rc::clone(&found));
        Ok(found)
    }

    /// Whether it has an element, of a map a value, or (`is_key`) a key.
    pub fn contains(&self, wanted: &[u8], is_key: bool) -> Result<bool, Impossible> {
        let Some(wire) = self.wire() else { return Ok(false) };
        let what = usize::from(is_key);
        if !self.asked[what].replace(true) {
            return Ok(contains(&self.data_type, wire, wanted, is_key)?);
        }
        match &self.data_type {
            CqlType::List(element, _) | CqlType::Set(element, _) => self.seek(ELEMENT, element, wanted),
            CqlType::Map(key_type, _, _) if is_key => self.seek(KEY, key_type, wanted),
            CqlType::Map(_, value_type, _) => self.seek(ELEMENT, value_type, wanted),
            _ => Ok(None),
        }
        .map(|found| found.is_some())
    }

    /// The first place of an element or a key that equals `wanted`.
    fn seek(&self, what: usize, of: &CqlType, wanted: &[u8]) -> Result<Option<usize>, Impossible> {
        let places = self.places()?;
        let wire = self.wire.as_deref().unwrap_or_default();
        let value = |at: &usize| {
            steps::count(1);
            places[*at].clone().map_or(&[][..], |place| &wire[place])
        };
        let ordered = self.ordered[what].get_or_init(|| {
            let mut all: Vec<usize> = match (&self.data_type, what) {
                (CqlType::Map(..), KEY) => (0..places.len()).step_by(2).collect(),
                (CqlType::Map(..), _) => (1..places.len()).step_by(2).collect(),
                _ => (0..places.len()).collect(),
            };
            all.sort_by(|one, other| compare(of, value(one), value(other)));
            all
        });
        let first = ordered.partition_point(|at| compare(of, value(at), wanted).is_lt());
        Ok(ordered.get(first).copied().filter(|at| compare(of, value(at), wanted).is_eq()))
    }

    fn places(&self) -> Result<&[Option<Range<usize>>], Impossible> {
        if let Some(places) = self.places.get() {
            return Ok(places);
        }
        let wire = self.wire.as_deref().unwrap_or_default();
        let place = |part: &[u8]| {
            steps::count(1);
            let start = part.as_ptr() as usize - wire.as_ptr() as usize;
            start..start + part.len()
        };
        let places: Result<Vec<_>, ValueError> = match &self.data_type {
            CqlType::Map(..) => {
                collection::keys_and_values(wire).and_then(|parts| parts.map(|p| p.map(|p| Some(place(p)))).collect())
            }
            CqlType::List(..) | CqlType::Set(..) => {
                collection::elements(wire).and_then(|parts| parts.map(|p| p.map(|p| Some(place(p)))).collect())
            }
            _ => collection::fields(wire).map(|part| part.map(|part| part.map(place))).collect(),
        };
        let places = places?;
        Ok(self.places.get_or_init(|| places))
    }
}

/// The value itself, but null for an empty collection of a type that is stored by element.
pub(super) fn normal<'a>(data_type: &CqlType, wire: Option<&'a [u8]>) -> Option<&'a [u8]> {
    let is_collection = matches!(data_type, CqlType::List(..) | CqlType::Set(..) | CqlType::Map(..));
    wire.filter(|value| {
        !(is_collection && data_type.is_multi_cell())
            || collection::elements(value).is_ok_and(|mut elements| elements.next().is_some())
    })
}
