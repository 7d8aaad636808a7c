mod others;
mod pods;
mod services;
mod stopped;
mod world;
