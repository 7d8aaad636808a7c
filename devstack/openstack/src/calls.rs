//! The requests that the services counted.

use serde::Deserialize;

/// The number of requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Count {
    /// The `User-Agent` header of the client.
    pub agent: String,
    /// The id of the client's project; empty if the service rejected the request before it knew the project.
    pub project: String,
    /// The HTTP method.
    pub method: String,
    /// The path, with `*` in place of ids: `/v2.0/ports/*`.
    pub path: String,
    /// The HTTP status of the response.
    pub status: String,
    /// The number of requests.
    pub count: usize,
    /// The number of created resources; one request may create several.
    pub made: usize,
}

/// All requests that a service has received so far.
#[derive(Clone, Debug, Default)]
pub struct Calls(pub Vec<Count>);

impl Calls {
    /// Returns the requests since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let what = |count: &Count| Count { count: 0, made: 0, ..count.clone() };
        let before = |count: &Count| {
            let same = |other: &&Count| what(other) == what(count);
            earlier.0.iter().find(same).map_or((0, 0), |other| (other.count, other.made))
        };
        let later = self.0.iter().map(|count| {
            let (asked, made) = before(count);
            Count { count: count.count - asked, made: count.made - made, ..count.clone() }
        });
        Self(later.filter(|count| count.count > 0).collect())
    }

    /// Returns the number of resources that matching requests created.
    #[must_use]
    pub fn made(&self, matches: impl Fn(&Count) -> bool) -> usize {
        self.0.iter().filter(|count| matches(count)).map(|count| count.made).sum()
    }

    /// Returns the number of matching requests.
    #[must_use]
    pub fn count(&self, matches: impl Fn(&Count) -> bool) -> usize {
        self.0.iter().filter(|count| matches(count)).map(|count| count.count).sum()
    }

    /// Returns the controller's requests for this project.
    #[must_use]
    pub fn of_controller(&self, project: &str) -> Self {
        let ours = |count: &&Count| count.project == project && count.agent.starts_with("staffetta/");
        Self(self.0.iter().filter(ours).cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(method: &str, count: usize) -> Count {
        Count {
            agent: "staffetta/1".into(),
            project: "p".into(),
            method: method.into(),
            path: "/v2.0/ports".into(),
            status: "200".into(),
            count,
            made: if method == "POST" { 10 * count } else { 0 },
        }
    }

    #[test]
    fn what_was_asked_before_does_not_count() {
        let earlier = Calls(vec![count("GET", 2), count("POST", 1), count("PATCH", 1)]);
        let later = Calls(vec![count("GET", 5), count("POST", 3), count("PUT", 1), count("PATCH", 1)]);
        let later = later.since(&earlier);
        assert_eq!(later.0, [count("GET", 3), count("POST", 2), count("PUT", 1)]);
        assert_eq!(later.count(|count| count.path == "/v2.0/ports"), 6);
        assert_eq!(later.made(|count| count.path == "/v2.0/ports"), 20);
    }
}
