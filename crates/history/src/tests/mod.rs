//! The checkers against histories whose verdict is known: by hand, by brute force, or because a real register made them.

mod brute_force;
mod by_hand;
mod generated;
mod recording;
