//! The blocks of code of a page of the documentation.

#![allow(dead_code, reason = "each test takes what it needs")]

use std::fs;
use std::path::Path;

/// A page.
pub(crate) struct Page {
    /// The path in the repository.
    pub(crate) path: String,
    blocks: Vec<(String, String)>,
}

impl Page {
    pub(crate) fn read(path: &str) -> Self {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap();
        let mut blocks = Vec::new();
        let mut lines = text.lines();
        while let Some(line) = lines.next() {
            if let Some(language) = line.strip_prefix("```") {
                let body = lines.by_ref().take_while(|line| *line != "```").map(|line| format!("{line}\n"));
                blocks.push((language.to_owned(), body.collect()));
            }
        }
        Self { path: path.to_owned(), blocks }
    }

    /// The blocks in this language.
    pub(crate) fn blocks<'a>(&'a self, language: &'a str) -> impl Iterator<Item = &'a str> {
        let blocks = self.blocks.iter().filter(move |(of_block, _)| of_block == language);
        blocks.map(|(_, body)| body.as_str())
    }

    /// The blocks whose first line is a comment with the path of a file.
    fn named(&self) -> impl Iterator<Item = (&str, &str)> {
        let first = |body: &str| body.lines().next()?.strip_prefix("# ").map(str::len);
        let with_path =
            self.blocks.iter().filter_map(move |(_, body)| Some((&body[2..2 + first(body)?], body.as_str())));
        with_path.filter(|(path, _)| path.contains('.') && !path.contains(' '))
    }

    /// Writes the files of the page into a folder.
    pub(crate) fn write_files(&self, folder: &Path) {
        for (path, body) in self.named() {
            let path = folder.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, body).unwrap();
        }
    }

    /// The commands of the blocks `console`, each with the output that the page shows.
    pub(crate) fn commands(&self) -> Vec<(&str, String)> {
        let mut commands = Vec::new();
        for line in self.blocks("console").flat_map(str::lines) {
            match line.strip_prefix("$ ") {
                Some(command) => commands.push((command, String::new())),
                None => commands.last_mut().unwrap().1.extend([line, "\n"]),
            }
        }
        commands
    }
}
