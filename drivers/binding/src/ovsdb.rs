//! A client of OVSDB (RFC 7047), the database that configures Open vSwitch.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use staffetta_driver::{DriverError, Reason, VifAttachment};

use crate::error::failed;
use crate::netlink::RouteSocket;

/// The time limit for Open vSwitch to apply a change of the database, such as to create an interface.
const APPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// The interval between two checks whether Open vSwitch has applied a change.
const APPLY_INTERVAL: Duration = Duration::from_millis(5);
/// The time limit of each read and each write of a request to OVSDB, longer than [`APPLY_TIMEOUT`].
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The maximum size of all that OVSDB sends on the connection of one request, in bytes.
const MAX_ANSWER: u64 = 1 << 20;

/// A client of the OVSDB server on this node. It opens a connection for each request.
#[derive(Clone, Debug)]
pub(crate) struct Ovsdb {
    /// The path of the Unix socket of the server.
    pub(crate) socket: PathBuf,
}

/// A port that is to be added to a bridge of Open vSwitch, as a row of its database.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PortRow<'a> {
    /// The name of the bridge.
    pub(crate) bridge: &'a str,
    /// The name of the port and of its interface.
    pub(crate) name: &'a str,
    /// The id of the port in Neutron, by which Neutron's agent recognizes the interface.
    pub(crate) port_id: &'a str,
    /// The MAC address of the port in Neutron.
    pub(crate) mac: &'a str,
    /// The owner of the port: that of the pod's VIF, or [`NODE`].
    pub(crate) owner: &'a str,
    /// `true` for an interface that Open vSwitch creates (`type: internal`).
    pub(crate) internal: bool,
}

/// An existing interface of Open vSwitch, as its database describes it.
pub(crate) struct InterfaceRow {
    /// The owner for whom these drivers created the interface; `None` if another program created it.
    pub(crate) owner: Option<String>,
    /// The id of the port in Neutron; empty if there is none.
    pub(crate) port_id: String,
    /// The number of the port on its bridge; `None` if Open vSwitch has not created it.
    pub(crate) number: Option<i64>,
    /// `true` if Open vSwitch itself created the interface, which may then be in any network namespace. No interface of a pod is.
    pub(crate) internal: bool,
    /// The UUID of the row in the table `Port` that contains the interface.
    port: Value,
}

/// The key of the mark on the interfaces that these drivers created, in their `external_ids`. Its value is the owner of the interface.
const MARK: &str = "staffetta";
/// The owner of the port of the node itself. No owner of a VIF is called so: all of them contain a slash.
pub(crate) const NODE: &str = "node";

impl Ovsdb {
    /// Returns the type of the datapath of a bridge: empty or `system` for the kernel, `netdev` for userspace. Fails if there is no such
    /// bridge.
    pub(crate) fn datapath(&self, bridge: &str) -> Result<String, DriverError> {
        let step = "find the Open vSwitch bridge";
        let select = json!({ "op": "select", "table": "Bridge", "where": [["name", "==", bridge]], "columns": ["datapath_type"] });
        let answer = self.transact(step, &[select])?;
        let missing = || {
            DriverError::new(Reason::Unavailable, step)
                .detail(format!("there is no bridge {bridge} on the node"))
        };
        let row = answer[0]["rows"].get(0).ok_or_else(missing)?;
        Ok(row["datapath_type"].as_str().unwrap_or_default().to_owned())
    }

    /// Returns the interface called `name`, with its port of the same name; `None` if one of the two does not exist.
    pub(crate) fn interface(&self, name: &str) -> Result<Option<InterfaceRow>, DriverError> {
        let select = |table, columns| json!({ "op": "select", "table": table, "where": [["name", "==", name]], "columns": columns });
        let ops = [
            select("Interface", json!(["external_ids", "ofport", "type"])),
            select("Port", json!(["_uuid"])),
        ];
        let answer = self.transact("read the port of Open vSwitch", &ops)?;
        let (Some(interface), Some(port)) = (answer[0]["rows"].get(0), answer[1]["rows"].get(0)) else {
            return Ok(None);
        };
        let id = |key: &str| {
            let pairs = interface["external_ids"][1].as_array();
            let pair = pairs.into_iter().flatten().find(|pair| pair[0] == key);
            pair.and_then(|pair| pair[1].as_str()).map(str::to_owned)
        };
        Ok(Some(InterfaceRow {
            owner: id(MARK),
            port_id: id("iface-id").unwrap_or_default(),
            number: interface["ofport"].as_i64().filter(|number| *number > 0),
            internal: interface["type"] == "internal",
            port: port["_uuid"].clone(),
        }))
    }

    /// Returns `true` if the port of the interface `row` belongs to the bridge `bridge`.
    pub(crate) fn is_on(&self, row: &InterfaceRow, bridge: &str) -> Result<bool, DriverError> {
        let conditions = json!([["name", "==", bridge], ["ports", "includes", row.port]]);
        let select = json!({ "op": "select", "table": "Bridge", "where": conditions, "columns": ["name"] });
        let answer = self.transact("read the bridge of the port", &[select])?;
        Ok(answer[0]["rows"].get(0).is_some())
    }

    /// Returns the existing port called `name` in Open vSwitch if the VIF may replace it: it has the same owner, or nobody uses it
    /// any more, because the interface on the node no longer exists. Returns `None` if there is no such port. Fails with
    /// [`Reason::Conflict`] if another owner uses it, and with [`Reason::Refused`] if it belongs to another program, unless that
    /// left it for the same Neutron port.
    pub(crate) fn own(
        &self,
        name: &str,
        attachment: &VifAttachment,
    ) -> Result<Option<InterfaceRow>, DriverError> {
        let Some(row) = self.interface(name)? else { return Ok(None) };
        let step = "check the port of Open vSwitch";
        let is_ours = row.owner.is_some();
        let is_unused = || {
            let interface = if is_ours { attachment.host_interface() } else { name.to_owned() };
            let link = RouteSocket::open().and_then(|host| host.link(&interface)).map_err(failed(step))?;
            Ok(!row.internal && (is_ours || row.port_id == attachment.vif.id.as_str()) && link.is_none())
        };
        if row.owner.as_ref() == Some(&attachment.owner) || is_unused()? {
            return Ok(Some(row));
        }
        Err(if is_ours {
            DriverError::new(Reason::Conflict, step)
                .detail(format!("{name} is in use by the node or by another container"))
        } else {
            DriverError::new(Reason::Refused, step).detail(format!("another program has created {name}"))
        })
    }

    /// Removes the port called `name` if it has that owner. Any other one is left alone.
    pub(crate) fn remove_own(&self, name: &str, owner: &str) -> Result<(), DriverError> {
        match self.interface(name)? {
            Some(row) if row.owner.as_deref() == Some(owner) => self.remove(&row),
            _ => Ok(()),
        }
    }

    /// Returns `false` if this node has no OVSDB, so no ports of Open vSwitch.
    pub(crate) fn is_present(&self) -> bool {
        !matches!(self.socket.try_exists(), Ok(false))
    }

    /// Returns the names of the ports of an owner.
    pub(crate) fn names_of(&self, owner: &str) -> Result<Vec<String>, DriverError> {
        let is_marked = json!([["external_ids", "includes", ["map", [[MARK, owner]]]]]);
        let select = json!({ "op": "select", "table": "Interface", "where": is_marked, "columns": ["name"] });
        let answer = self.transact("find the ports of the container", &[select])?;
        let rows = answer[0]["rows"].as_array().into_iter().flatten();
        Ok(rows.filter_map(|row| row["name"].as_str().map(str::to_owned)).collect())
    }

    /// Returns an error unless Open vSwitch has created the interface `name` of the port `port_id`.
    pub(crate) fn check(&self, name: &str, port_id: &str) -> Result<(), DriverError> {
        match self.interface(name)? {
            Some(row) if row.port_id == port_id && row.number.is_some() => Ok(()),
            _ => Err(DriverError::new(Reason::NotFound, "check the port of Open vSwitch")
                .detail(format!("{name} is not a port of Open vSwitch with the id of the VIF"))),
        }
    }

    /// Adds a port, and waits until Open vSwitch has created its interface.
    pub(crate) fn add(&self, port: PortRow<'_>) -> Result<(), DriverError> {
        let step = "add the port to Open vSwitch";
        let ids = [
            ("iface-id", port.port_id),
            ("iface-status", "active"),
            ("attached-mac", port.mac),
            (MARK, port.owner),
        ];
        let mut interface = json!({ "name": port.name, "external_ids": ["map", ids] });
        if port.internal {
            interface["type"] = "internal".into();
            interface["mac"] = port.mac.into();
        }
        let bridge = json!([["name", "==", port.bridge]]);
        let ops = [
            json!({ "op": "insert", "table": "Interface", "uuid-name": "interface", "row": interface }),
            json!({ "op": "insert", "table": "Port", "uuid-name": "port",
                "row": { "name": port.name, "interfaces": ["named-uuid", "interface"] } }),
            json!({ "op": "mutate", "table": "Bridge", "where": bridge,
                "mutations": [["ports", "insert", ["set", [["named-uuid", "port"]]]]] }),
        ];
        let answer = self.transact(step, &ops)?;
        if answer[ops.len() - 1]["count"] != 1 {
            return Err(DriverError::new(Reason::Unavailable, step)
                .detail(format!("there is no bridge {} on the node", port.bridge)));
        }
        self.wait(port.name)
    }

    /// Makes Open vSwitch keep the MTU of the internal interface `name`, in bytes, instead of the smallest one of its bridge.
    pub(crate) fn request_mtu(&self, name: &str, mtu: u32) -> Result<(), DriverError> {
        let update = json!({ "op": "update", "table": "Interface", "where": [["name", "==", name]], "row": { "mtu_request": mtu } });
        self.transact("set the MTU of the port of the node", &[update]).map(drop)
    }

    /// Waits until Open vSwitch has created the interface `name`. Fails if it cannot, or has not within [`APPLY_TIMEOUT`].
    fn wait(&self, name: &str) -> Result<(), DriverError> {
        let step = "wait for Open vSwitch to create the port";
        let by_name = json!([["name", "==", name]]);
        let wait = json!({ "op": "wait", "table": "Interface", "where": by_name, "columns": ["ofport"], "until": "!=",
            "rows": [{ "ofport": ["set", []] }], "timeout": APPLY_TIMEOUT.as_millis() });
        let select =
            json!({ "op": "select", "table": "Interface", "where": by_name, "columns": ["ofport", "error"] });
        let answer = self.transact(step, &[wait, select])?;
        let row = &answer[1]["rows"][0];
        if row["ofport"].as_i64().is_some_and(|number| number > 0) {
            return Ok(());
        }
        Err(DriverError::new(Reason::Unavailable, step)
            .detail(row["error"].as_str().unwrap_or(name).to_owned()))
    }

    /// Removes the port `old` of a name that is about to be used again. Without one, waits until Open vSwitch has applied what was
    /// requested so far, such as the removal by a daemon that was killed before it was applied.
    pub(crate) fn make_way(&self, old: Option<InterfaceRow>) -> Result<(), DriverError> {
        let step = "read what Open vSwitch has to apply";
        match old {
            Some(old) => self.remove(&old),
            None => self.wait_applied(&self.transact(step, &[select_global("next_cfg")])?[0]),
        }
    }

    /// Removes the port of an interface, and waits until Open vSwitch has applied the removal. Without the wait, Open vSwitch could take a
    /// new port of the same name for the old one, and keep the interface of the old one, which does not exist any more.
    pub(crate) fn remove(&self, row: &InterfaceRow) -> Result<(), DriverError> {
        let count = json!({ "op": "mutate", "table": "Open_vSwitch", "where": [], "mutations": [["next_cfg", "+=", 1]] });
        // The database deletes the rows of a port, which nothing refers to then.
        let remove = json!({ "op": "mutate", "table": "Bridge", "where": [["ports", "includes", row.port]],
            "mutations": [["ports", "delete", row.port]] });
        let ops = [remove, count, select_global("next_cfg")];
        self.wait_applied(&self.transact("remove the port from Open vSwitch", &ops)?[2])
    }

    /// Waits until Open vSwitch has applied what was requested when `next_cfg` was read, the answer to that selection. Fails if that takes
    /// longer than [`APPLY_TIMEOUT`].
    #[expect(clippy::disallowed_methods, reason = "bindings run on threads for blocking work")]
    fn wait_applied(&self, next_cfg: &Value) -> Result<(), DriverError> {
        let step = "wait until Open vSwitch has applied its configuration";
        let requested = next_cfg["rows"][0]["next_cfg"].as_i64().unwrap_or_default();
        let deadline = Instant::now() + APPLY_TIMEOUT;
        loop {
            let answer = self.transact(step, &[select_global("cur_cfg")])?;
            if answer[0]["rows"][0]["cur_cfg"].as_i64().is_some_and(|applied| applied >= requested) {
                return Ok(());
            }
            if Instant::now() > deadline {
                return Err(DriverError::new(Reason::Unavailable, step)
                    .detail("ovs-vswitchd does not apply changes".to_owned()));
            }
            thread::sleep(APPLY_INTERVAL);
        }
    }

    /// Runs the operations on the database as one transaction, and returns their results. Fails if one of them fails.
    fn transact(&self, step: &'static str, ops: &[Value]) -> Result<Value, DriverError> {
        let params: Vec<Value> = std::iter::once(json!("Open_vSwitch")).chain(ops.iter().cloned()).collect();
        let request = json!({ "method": "transact", "params": params, "id": 1 });
        let answer = self.exchange(&request).map_err(|error| {
            DriverError::new(Reason::Unavailable, step)
                .detail(format!("OVSDB at {} (`binding.ovsdb`)", self.socket.display()))
                .because(error)
        })?;
        let results = answer["result"].as_array().cloned().unwrap_or_default();
        let error = results.iter().find(|result| result.get("error").is_some_and(|error| !error.is_null()));
        let error = error.or_else(|| Some(&answer["error"]).filter(|error| !error.is_null()));
        if let Some(error) = error {
            return Err(DriverError::new(Reason::Unavailable, step).detail(error.to_string()));
        }
        Ok(results.into())
    }

    /// Sends one JSON-RPC request over a new connection, and returns the response with its id (RFC 7047, section 4). Each read and each
    /// write may take [`REQUEST_TIMEOUT`], and all responses together may have [`MAX_ANSWER`] bytes.
    fn exchange(&self, request: &Value) -> io::Result<Value> {
        #[cfg(test)]
        crate::changes::count()?;
        let mut stream = UnixStream::connect(&self.socket)?;
        stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
        stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        stream.write_all(request.to_string().as_bytes())?;
        let answers = serde_json::Deserializer::from_reader((&stream).take(MAX_ANSWER));
        for message in answers.into_iter::<Value>() {
            let message = message?;
            // The server may ask whether the connection is alive before it answers.
            if message["method"] == "echo" {
                let reply = json!({ "result": message["params"], "error": null, "id": message["id"] });
                (&stream).write_all(reply.to_string().as_bytes())?;
            } else if message["id"] == request["id"] {
                return Ok(message);
            }
        }
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// Returns the operation that reads a column of the table `Open_vSwitch`, which has one row.
fn select_global(column: &str) -> Value {
    json!({ "op": "select", "table": "Open_vSwitch", "where": [], "columns": [column] })
}
