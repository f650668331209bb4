use std::collections::HashMap;

#[derive(Debug, Clone, PartialEq)]
pub enum Token {
    Number(f64),
    Name(String),
    Sign(char),
}

impl Token {
    /// Reads one token; `None` at the end.
    pub fn next(text: &str) -> Option<(Token, usize)> {
        let first = text.chars().next()?;
        match first {
            '0'..='9' => {
                let length = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
                Some((Token::Number(text[..length].parse().ok()?), length))
            }
            _ => Some((Token::Sign(first), first.len_utf8())),
        }
    }
}
