mod cache;
mod frame_builder;
mod generated;
mod hostile;
mod naive;
mod real_files;
