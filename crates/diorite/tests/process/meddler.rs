//! Stands between a node and those that dial it, and changes what they say at the beginning: their protocol version, or their clock.
//!
//! Always true: what it changes stays well-formed (see `docs/formats/rpc.md`), and everything after the opening passes as it is. It is how one machine's
//! processes get versions and clocks that differ.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// The port that nodes speak to each other on.
const NODE_PORT: u16 = 7100;
const PREAMBLE_BYTES: usize = 12;
const HEADER_BYTES: usize = 8;

/// What becomes of an opening.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meddling {
    /// Nothing.
    Nothing,
    /// The dialler's protocol version is this.
    Version(u32),
    /// The dialler's wall clock is wrong by so much.
    ClockOff { microseconds: i64 },
}

/// See the top of this module. Its threads end with the test's process.
pub struct Meddler {
    /// Where the node is to be dialled.
    pub address: String,
    meddling: Arc<Mutex<Meddling>>,
}

impl Meddler {
    /// Stands at `address` before the node at `target`.
    pub fn new(address: String, target: &str) -> Self {
        let listener = TcpListener::bind((address.as_str(), NODE_PORT)).unwrap();
        let meddling = Arc::new(Mutex::new(Meddling::Nothing));
        let (shared, target) = (Arc::clone(&meddling), target.to_owned());
        std::thread::spawn(move || {
            for dialled in listener.incoming() {
                let (meddling, target) = (Arc::clone(&shared), target.clone());
                // Either side may end a connection at any time: that is not this test's affair.
                std::thread::spawn(move || dialled.and_then(|dialled| pass(dialled, &target, &meddling)).ok());
            }
        });
        Self { address, meddling }
    }

    /// From the next connection on.
    pub fn set(&self, meddling: Meddling) {
        *self.meddling.lock().unwrap() = meddling;
    }
}

fn pass(mut dialled: TcpStream, target: &str, meddling: &Mutex<Meddling>) -> io::Result<()> {
    let mut node = TcpStream::connect((target, NODE_PORT))?;
    dialled.set_nodelay(true)?;
    node.set_nodelay(true)?;
    node.write_all(&opening(&mut dialled, *meddling.lock().unwrap())?)?;
    let (mut answers, mut back) = (node.try_clone()?, dialled.try_clone()?);
    std::thread::spawn(move || {
        let _ = io::copy(&mut answers, &mut back);
        let _ = back.shutdown(Shutdown::Both);
    });
    let copied = io::copy(&mut dialled, &mut node);
    node.shutdown(Shutdown::Both)?;
    copied.map(|_| ())
}

/// Reads the preamble and the first frame, and gives them changed.
fn opening(dialled: &mut TcpStream, meddling: Meddling) -> io::Result<Vec<u8>> {
    let mut head = [0; PREAMBLE_BYTES + HEADER_BYTES];
    dialled.read_exact(&mut head)?;
    let length = u32::from_le_bytes(head[12..16].try_into().unwrap());
    let mut body = vec![0; length as usize];
    dialled.read_exact(&mut body)?;
    match meddling {
        Meddling::Nothing => {}
        Meddling::Version(version) => head[8..12].copy_from_slice(&version.to_le_bytes()),
        Meddling::ClockOff { microseconds } => {
            // After one byte that says what the connection is for.
            let wall_us = i64::from_le_bytes(body[1..9].try_into().unwrap());
            body[1..9].copy_from_slice(&(wall_us + microseconds).to_le_bytes());
            head[16..20].copy_from_slice(&crc32(&body).to_le_bytes());
        }
    }
    Ok([&head[..], &body].concat())
}

/// CRC-32 (IEEE), bit by bit.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xEDB8_8320 } else { crc >> 1 };
    let add = |crc: u32, byte: &u8| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc));
    !bytes.iter().fold(!0, add)
}

#[test]
fn the_checksum_is_that_of_ieee() {
    assert_eq!(crc32(b"123456789"), 0xCBF4_3926);
}
