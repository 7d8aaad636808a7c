//! The nodes for which other machines stand.

use std::fmt;

use prometheus_client::encoding::DescriptorEncoder;
use staffetta_virtual_node::FigureBoard;

use super::exposition::write;
use super::names;

pub(super) fn encode(board: &FigureBoard, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
    let handlers = board.figures();
    write(encoder, &names::VIRTUAL_NODES, |series| {
        for (handler, figures) in &handlers {
            figures.nodes.iter().try_for_each(|(state, count)| series.gauge(&[handler, state], *count))?;
        }
        Ok(())
    })?;
    write(encoder, &names::VIRTUAL_NODE_PODS, |series| {
        for (handler, figures) in &handlers {
            figures.pods.iter().try_for_each(|(phase, count)| series.gauge(&[handler, phase], *count))?;
        }
        Ok(())
    })?;
    write(encoder, &names::VIRTUAL_NODE_READS, |series| {
        for (handler, figures) in &handlers {
            figures
                .reads
                .iter()
                .try_for_each(|(outcome, count)| series.counter(&[handler, outcome], *count))?;
        }
        Ok(())
    })?;
    write(encoder, &names::KUBELET_REQUESTS, |series| {
        for (handler, figures) in &handlers {
            for (request, outcome, count) in &figures.kubelet_requests {
                series.counter(&[handler, request, outcome], *count)?;
            }
        }
        Ok(())
    })
}
