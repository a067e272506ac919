//! The command line, tested through the binary as a shell would use it.

#![cfg(feature = "cli")]

mod asof;
mod bench;
mod bounds;
mod calibrate;
mod choice;
mod doctor;
mod expressions;
mod generate;
mod help;
mod hot;
mod input;
mod interrupt;
mod job;
mod json;
mod load;
mod nyc;
mod order;
mod output;
mod pipes;
mod profile;
mod rules;
mod sample;
mod select;
mod state;
mod support;
mod then;
mod time;
mod trouble;
mod tuning;
mod verify;
mod verify_forms;
mod window;
