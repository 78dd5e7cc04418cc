//! Graphs in the DOT language.

use super::model::Graphs;
use super::task::Task;
use crate::Answer;
use crate::module::function;
use crate::process::Driver;
use driver_sys::cuda::*;
use std::fmt::Write;

/// The label of a node: its type, a kernel's name, a copy's kinds of memory.
fn label(driver: &'static Driver, task: &Task) -> String {
    match task {
        Task::Kernel(kernel) => {
            let name = function::find(driver, kernel.call.func).map(function::Function::name_text);
            let call = &kernel.call;
            format!(
                "KERNEL {} <<<({},{},{}),({},{},{})>>>",
                name.unwrap_or_default(),
                call.gridDimX,
                call.gridDimY,
                call.gridDimZ,
                call.blockDimX,
                call.blockDimY,
                call.blockDimZ
            )
        }
        Task::Copy(copy, _) => {
            let side = |kind| match kind {
                CU_MEMORYTYPE_HOST => "HOST",
                CU_MEMORYTYPE_DEVICE => "DEVICE",
                CU_MEMORYTYPE_ARRAY => "ARRAY",
                _ => "UNIFIED",
            };
            format!("MEMCPY {} to {}", side(copy.srcMemoryType), side(copy.dstMemoryType))
        }
        Task::Fill(_) => "MEMSET".to_owned(),
        Task::Host(_) => "HOST".to_owned(),
        Task::Child(_) => "CHILD GRAPH".to_owned(),
        Task::Empty => "EMPTY".to_owned(),
        Task::Wait(_) => "EVENT WAIT".to_owned(),
        Task::Record(_) => "EVENT RECORD".to_owned(),
        Task::Allocate(made) => format!("MEM ALLOC {:#x} {} bytes", made.address(), made.bytes),
        Task::Free(freed) => format!("MEM FREE {:#x}", freed.address()),
    }
}

fn cluster(
    driver: &'static Driver,
    graphs: &Graphs,
    graph: usize,
    has_handles: bool,
    text: &mut String,
) -> Answer {
    let found = graphs.graph(graph)?;
    let number = found.id;
    // Writing to a string cannot fail.
    let _ = writeln!(text, "subgraph cluster_{number} {{\nlabel=\"graph_{number}\"");
    for (id, node) in &found.nodes {
        let shown = if has_handles { format!("\\n{:#x}", node.handle) } else { String::new() };
        let label = label(driver, &node.task).replace('"', "'");
        let _ = writeln!(
            text,
            "\"graph_{number}_node_{id}\" [shape=\"record\" label=\"{id}\\n{label}{shown}\"];"
        );
        if let Task::Child(child) = node.task {
            cluster(driver, graphs, child, has_handles, text)?;
        }
    }
    for (from, to, _) in found.edges() {
        let _ = writeln!(text, "\"graph_{number}_node_{from}\" -> \"graph_{number}_node_{to}\";");
    }
    text.push_str("}\n");
    Ok(())
}

/// The description of a graph and its child graphs.
pub fn text(driver: &'static Driver, graphs: &Graphs, graph: usize, flags: u32) -> Answer<String> {
    let mut text = "digraph dot {\n".to_owned();
    let handles = CU_GRAPH_DEBUG_DOT_FLAGS_HANDLES | CU_GRAPH_DEBUG_DOT_FLAGS_VERBOSE;
    cluster(driver, graphs, graph, flags & handles != 0, &mut text)?;
    text.push_str("}\n");
    Ok(text)
}
