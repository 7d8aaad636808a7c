//! The grammar: expressions of operators, aggregations, functions and selectors. Operator precedence is ignored.

use super::token::Token;
use super::{Matcher, Query, Range, Selector};

const AGGREGATIONS: [&str; 6] = ["sum", "min", "max", "avg", "count", "group"];

/// Functions of series over a length of time.
const OVER_TIME: [&str; 6] = ["rate", "increase", "irate", "changes", "max_over_time", "min_over_time"];

/// Functions of anything else.
const FUNCTIONS: [&str; 5] = ["histogram_quantile", "absent", "time", "vector", "clamp_min"];

const SET_OPERATORS: [&str; 3] = ["and", "or", "unless"];
const OPERATORS: [&str; 11] = ["==", "!=", ">=", "<=", ">", "<", "+", "-", "*", "/", "%"];

pub(super) fn parse(tokens: Vec<Token>) -> Result<Query, String> {
    let mut parser = Parser { tokens: tokens.into_iter().rev().collect(), query: Query::default() };
    parser.expression()?;
    match parser.tokens.last() {
        None => Ok(parser.query),
        Some(token) => Err(format!("{token:?} is too much")),
    }
}

struct Parser {
    /// The remaining tokens in reverse order.
    tokens: Vec<Token>,
    query: Query,
}

impl Parser {
    fn expression(&mut self) -> Result<(), String> {
        self.operand()?;
        while self.operator() {
            if self.word("on") || self.word("ignoring") {
                self.labels()?;
                if (self.word("group_left") || self.word("group_right")) && self.next_is("(") {
                    self.labels()?;
                }
            }
            self.operand()?;
        }
        Ok(())
    }

    /// Takes an operator, if there is one.
    fn operator(&mut self) -> bool {
        let is = match self.tokens.last() {
            Some(Token::Name(name)) => SET_OPERATORS.contains(&name.as_str()),
            Some(Token::Sign(sign)) => OPERATORS.contains(&sign.as_str()),
            _ => false,
        };
        if is {
            self.tokens.pop();
            self.word("bool");
        }
        is
    }

    fn operand(&mut self) -> Result<(), String> {
        self.sign("-");
        match self.tokens.pop().ok_or("the query ends too early")? {
            Token::Number(_) => Ok(()),
            Token::Sign(sign) if sign == "(" => {
                self.expression()?;
                self.expect(")")
            }
            Token::Name(name) if AGGREGATIONS.contains(&name.as_str()) => self.aggregation(),
            Token::Name(name) if OVER_TIME.contains(&name.as_str()) => self.over_time(name),
            Token::Name(name) if self.next_is("(") => {
                let known = FUNCTIONS.contains(&name.as_str());
                if known { self.arguments() } else { Err(format!("there is no function `{name}`")) }
            }
            Token::Name(metric) => {
                let selector = self.selector(metric)?;
                self.query.selectors.push(selector);
                Ok(())
            }
            token => Err(format!("{token:?} stands where a value must")),
        }
    }

    /// `by (labels) (expression)` or `(expression) by (labels)`.
    fn aggregation(&mut self) -> Result<(), String> {
        let grouped = self.grouping()?;
        self.expect("(")?;
        self.expression()?;
        self.expect(")")?;
        if !grouped {
            self.grouping()?;
        }
        Ok(())
    }

    fn grouping(&mut self) -> Result<bool, String> {
        let grouped = self.word("by") || self.word("without");
        if grouped {
            self.labels()?;
        }
        Ok(grouped)
    }

    fn over_time(&mut self, function: String) -> Result<(), String> {
        self.expect("(")?;
        let Some(Token::Name(metric)) = self.tokens.pop() else {
            return Err(format!("`{function}` wants series"));
        };
        let mut selector = self.selector(metric)?;
        self.expect("[")?;
        let length = match self.tokens.pop() {
            Some(Token::Duration(length)) => length,
            other => return Err(format!("{other:?} is no length of time")),
        };
        self.expect("]")?;
        selector.range = Some(Range { function, length });
        self.query.selectors.push(selector);
        self.expect(")")
    }

    fn arguments(&mut self) -> Result<(), String> {
        self.expect("(")?;
        if self.sign(")") {
            return Ok(());
        }
        self.expression()?;
        while self.sign(",") {
            self.expression()?;
        }
        self.expect(")")
    }

    fn selector(&mut self, metric: String) -> Result<Selector, String> {
        let mut selector = Selector { metric, ..Selector::default() };
        if self.sign("{") {
            while !self.sign("}") {
                selector.matchers.push(self.matcher()?);
                if !self.sign(",") && !self.next_is("}") {
                    return Err("a comma is missing between two labels".to_owned());
                }
            }
        }
        Ok(selector)
    }

    fn matcher(&mut self) -> Result<Matcher, String> {
        let words = [self.tokens.pop(), self.tokens.pop(), self.tokens.pop()];
        match words {
            [Some(Token::Name(label)), Some(Token::Sign(operator)), Some(Token::Text(value))]
                if ["=", "!=", "=~", "!~"].contains(&operator.as_str()) =>
            {
                Ok(Matcher { label, operator, value })
            }
            other => Err(format!("{other:?} is no choice by a label")),
        }
    }

    /// `(label, ...)`.
    fn labels(&mut self) -> Result<(), String> {
        self.expect("(")?;
        while !self.sign(")") {
            match self.tokens.pop() {
                Some(Token::Name(label)) => self.query.labels.insert(label),
                other => return Err(format!("{other:?} is no label")),
            };
            if !self.sign(",") && !self.next_is(")") {
                return Err("a comma is missing between two labels".to_owned());
            }
        }
        Ok(())
    }

    fn next_is(&self, sign: &str) -> bool {
        matches!(self.tokens.last(), Some(Token::Sign(next)) if next == sign)
    }

    fn sign(&mut self, sign: &str) -> bool {
        let is = self.next_is(sign);
        if is {
            self.tokens.pop();
        }
        is
    }

    fn word(&mut self, word: &str) -> bool {
        let is = matches!(self.tokens.last(), Some(Token::Name(next)) if next == word);
        if is {
            self.tokens.pop();
        }
        is
    }

    fn expect(&mut self, sign: &str) -> Result<(), String> {
        if self.sign(sign) {
            Ok(())
        } else {
            Err(format!("`{sign}` is missing before {:?}", self.tokens.last()))
        }
    }
}
