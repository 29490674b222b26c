//! How alike two vectors of floats are: `similarity_cosine`, `similarity_euclidean`, `similarity_dot_product`.
//!
//! Always true: the result lies between 0 and 1 for vectors of length one, the greater the more alike, in Cassandra's scale. Left out: search
//! by similarity, which needs an index.

use crate::error::{invalid, value_error};
use diorite_cql::protocol::CqlError;
use diorite_model::types::CqlType;
use diorite_model::value::collection::vector_elements;

/// Which measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Similarity {
    /// By the angle between them
    Cosine,
    /// By their distance
    Euclidean,
    /// By their product
    DotProduct,
}

impl Similarity {
    /// The measure of a function's name, without underscores.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match name {
            "similaritycosine" => Similarity::Cosine,
            "similarityeuclidean" => Similarity::Euclidean,
            "similaritydotproduct" => Similarity::DotProduct,
            _ => return None,
        })
    }

    /// The similarity of two values of `vector<float, dimension>`.
    pub fn apply(self, dimension: u16, left: &[u8], right: &[u8]) -> Result<Vec<u8>, CqlError> {
        let (left, right) = (floats(dimension, left)?, floats(dimension, right)?);
        let product = |one: &[f32], other: &[f32]| -> f64 {
            one.iter().zip(other).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum()
        };
        let result = match self {
            Similarity::Cosine => {
                let lengths = (product(&left, &left) * product(&right, &right)).sqrt();
                if lengths == 0.0 {
                    return Err(invalid("Function system.similarity_cosine doesn't support all-zero vectors."));
                }
                (1.0 + product(&left, &right) / lengths) / 2.0
            }
            Similarity::Euclidean => {
                let squares: f64 = left.iter().zip(&right).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum();
                1.0 / (1.0 + squares)
            }
            Similarity::DotProduct => (1.0 + product(&left, &right)) / 2.0,
        };
        Ok((result as f32).to_be_bytes().to_vec())
    }
}

fn floats(dimension: u16, wire: &[u8]) -> Result<Vec<f32>, CqlError> {
    let read = |element: Result<&[u8], _>| {
        let element = element.map_err(value_error)?;
        let bytes: [u8; 4] = element.try_into().map_err(|_| invalid("a vector has an empty element"))?;
        Ok(f32::from_be_bytes(bytes))
    };
    vector_elements(&CqlType::Float, dimension, wire).map(read).collect()
}
