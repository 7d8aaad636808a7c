//! The datastore: `/data/MODULE:CONTAINER/...`.

use std::time::Instant;

use serde_json::{Map, Value};

use super::answer::{Answer, Problem};
use super::asked::Asked;
use super::write;
use crate::data::{Astray, Place, get};
use crate::iox::AppConfig;
use crate::machine::Machine;
use crate::oper;
use crate::options::{Empty, Narrowed};
use crate::schema::{self, Node, app_hosting_cfg};

/// A top container of a module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Top {
    AppHostingCfg,
    AppHostingOper,
    Arp,
    Hardware,
    Library,
}

impl Top {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "Cisco-IOS-XE-app-hosting-cfg:app-hosting-cfg-data" => Self::AppHostingCfg,
            "Cisco-IOS-XE-app-hosting-oper:app-hosting-oper-data" => Self::AppHostingOper,
            "Cisco-IOS-XE-arp-oper:arp-data" => Self::Arp,
            "Cisco-IOS-XE-device-hardware-oper:device-hardware-data" => Self::Hardware,
            "ietf-yang-library:modules-state" => Self::Library,
            _ => return None,
        })
    }

    fn node(self) -> &'static Node {
        match self {
            Self::AppHostingCfg => &app_hosting_cfg::ROOT,
            Self::AppHostingOper => &schema::oper::APP_HOSTING,
            Self::Arp => &schema::oper::ARP,
            Self::Hardware => &schema::oper::HARDWARE,
            Self::Library => &schema::oper::LIBRARY,
        }
    }
}

/// The answer to a request below `/data`.
pub(super) fn answer<'a>(
    machine: &mut Machine,
    asked: &Asked<'_>,
    mut segments: impl Iterator<Item = &'a str>,
    now: Instant,
) -> Result<Answer, Problem> {
    let name = segments.next().ok_or_else(Problem::method)?;
    let top = Top::named(name).ok_or_else(|| Problem::not_found(asked.path))?;
    let (module, container) = name.split_once(':').ok_or_else(|| Problem::not_found(asked.path))?;
    let place = Place::find(top.node(), module, segments).map_err(|astray| match astray {
        Astray::Unknown => Problem::not_found(asked.path),
        Astray::Keys => {
            Problem::new(400, "invalid-value", "the keys of a list are missing or too many".into())
        }
    })?;
    let fields = asked.fields()?;
    if asked.method != "GET" {
        return match top {
            Top::AppHostingCfg => write::answer(machine, asked, &place, now),
            _ => Err(Problem::method()),
        };
    }
    let data = machine.read(|config, iox, booted| match top {
        Top::AppHostingCfg => config.clone(),
        Top::AppHostingOper => oper::app_hosting(iox, AppConfig(config), now),
        Top::Arp => oper::arp(iox, AppConfig(config), now),
        Top::Hardware => oper::hardware(iox, booted, now),
        Top::Library => oper::library(),
    });
    let style = machine.iox.options.style;
    let Some(found) = get(&data, &place) else {
        // What a list does not hold is not found; what could be there and is empty is a matter of style.
        return if place.is_entry() || style.empty == Empty::NotFound {
            Err(Problem::not_found(asked.path))
        } else {
            Ok(Answer::code(204))
        };
    };
    let name = place.steps.last().map_or(container, |step| &step.name);
    let kept = fields.of(found);
    let (name, kept) = match (style.narrowed, fields.only(), kept) {
        (Narrowed::Member, Some(only), Value::Object(mut members)) if !place.is_entry() => {
            (only, members.remove(only).unwrap_or(Value::Object(members)))
        }
        (_, _, kept) => (name, kept),
    };
    let empty = matches!(&kept, Value::Object(members) if members.is_empty());
    if empty && style.empty == Empty::NotFound {
        return Err(Problem::not_found(asked.path));
    }
    if empty {
        return Ok(Answer::code(204));
    }
    let kept = if place.is_entry() { Value::Array(vec![kept]) } else { kept };
    Ok(Answer::json(&Map::from_iter([(format!("{module}:{name}"), kept)]).into()))
}
