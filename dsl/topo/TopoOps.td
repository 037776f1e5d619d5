// SPDX-License-Identifier: Apache-2.0
//
// The `topo` dialect: a topology file as IR. One op a section of the file; groups and communicators as
// the passes of the compiler refine them.

#ifndef PARATOPE_TOPO_OPS
#define PARATOPE_TOPO_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"

def Topo_Dialect : Dialect {
  let name = "topo";
  let summary = "what a topology file says: machine, model, mesh, groups, workload";
  let description = [{
    A module holds one topology: `topo.topology`, `topo.machine`, `topo.model`, `topo.mesh`, its
    `topo.group`s and a section op for each further section of the TOML file. After
    `--topo-build-groups` it holds `topo.comm`s as well: one a communicator, in closed form.
  }];
  let cppNamespace = "::paratope::topo";
  let useDefaultAttributePrinterParser = 1;
}

//===--------------------------------------------------------------------------------------------===//
// Sharding of a tensor
//===--------------------------------------------------------------------------------------------===//

def Topo_ShardAttr : AttrDef<Topo_Dialect, "Shard",
    [DeclareAttrInterfaceMethods<VerifiableTensorEncoding, ["verifyEncoding"]>]> {
  let mnemonic = "shard";
  let summary = "over which axes each dim of a tensor is split, and over which it is an unreduced sum";
  let description = [{
    `tensor<3840x5120xbf16, #topo.shard<[{"dp"}, {} ]>>` is split by tokens over axis dp;
    `tensor<480x5120xbf16, #topo.shard<[{"dp"}, {} ], partial ["tp"]>>` is a sum whose addends lie on the
    ranks of tp. A tensor without the attribute is whole on every rank. Shapes are global.
  }];
  let parameters = (ins "::mlir::ArrayAttr":$dims, "::mlir::ArrayAttr":$partial);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    ::llvm::ArrayRef<::mlir::Attribute> axesOf(int64_t dim) const;
    bool isPartial() const { return !getPartial().empty(); }
  }];
}

//===--------------------------------------------------------------------------------------------===//
// Ops
//===--------------------------------------------------------------------------------------------===//

class Topo_Op<string mnemonic, list<Trait> traits = []> : Op<Topo_Dialect, mnemonic, traits>;

// Names of files, machines and models are free text, and may be a group's name too: only groups are symbols, since only they are
// referred to. The others keep theirs as a label.

def StrArray : TypedArrayAttrBase<StrAttr, "array of strings">;

def Topo_TopologyOp : Topo_Op<"topology"> {
  let summary = "the file's own keys: language version, name, summary";
  let description = [{
    ```mlir
    topo.topology "v4.1-flash-decode-ep64" {topology = 1 : i64, summary = "64 GPUs, no tensor parallelism"}
    ```
  }];
  let arguments = (ins StrAttr:$name, DictionaryAttr:$fields, OptionalAttr<StrArray>:$written);
  let assemblyFormat = "$name $fields attr-dict";
}

def Topo_MachineOp : Topo_Op<"machine"> {
  let summary = "nodes, GPUs and links";
  let description = [{
    ```mlir
    topo.machine @"h200-nvl8-ib400" ["node" = 8 over "ib400", "gpu" = 8 over "nvlink"] {gpu = {…}}
    ```
    The bracket lists the machine's levels outermost first, each over the link that joins its members.
  }];
  let arguments = (ins SymbolNameAttr:$label, DictionaryAttr:$fields, OptionalAttr<StrArray>:$written);
  let hasCustomAssemblyFormat = 1;
}

def Topo_ModelOp : Topo_Op<"model"> {
  let summary = "the model's shapes";
  let arguments = (ins SymbolNameAttr:$label, DictionaryAttr:$fields, OptionalAttr<StrArray>:$written);
  let assemblyFormat = "$label $fields attr-dict";
}

def Topo_MeshOp : Topo_Op<"mesh"> {
  let summary = "the ranks: how many, and the sizes of the axes they factor into";
  let description = [{
    ```mlir
    topo.mesh @ranks layout "deepinfer" ["cp" = 1, "dp" = 64, "ep" = 64, "enp" = ["dp", "cp"]] {world_max_of = [["dp", "cp"], ["enp"]]}
    topo.mesh @ranks 64 layout "deepinfer" ["cp" = 1, "dp" = 64, "ep" = 64, "enp" = 64]   // after --topo-derive-sizes
    ```
    A size is a number or a product of other axes. The world stands before `layout` once it is known.
  }];
  let arguments = (ins SymbolNameAttr:$label, OptionalAttr<I64Attr>:$world, StrAttr:$layout,
                       StrArray:$axis_names, ArrayAttr:$axis_sizes, OptionalAttr<ArrayAttr>:$world_max_of,
                       OptionalAttr<DenseI64ArrayAttr>:$rank_map, OptionalAttr<I64Attr>:$rank_offset,
                       OptionalAttr<StrArray>:$written);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Topo_GroupOp : Topo_Op<"group"> {
  let summary = "an ordered set of ranks that communicate, for every rank at once";
  let description = [{
    ```mlir
    topo.group @ep of @ranks by "(edp ep) -> edp ep"
    topo.group @dcp of @ranks by ["(x dp pp pcp tp) -> (x dp pp tp pcp)", "(g dcp) -> g dcp"]
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, FlatSymbolRefAttr:$mesh, StrArray:$patterns, OptionalAttr<UnitAttr>:$written);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Topo_CommOp : Topo_Op<"comm"> {
  let summary = "a communicator in closed form; several groups may share one";
  let description = [{
    ```mlir
    topo.comm @ep size 64 count 1 color affine_map<(r) -> (r floordiv 64)> key affine_map<(r) -> (r mod 64)> roles ["ep", "ep_in_dp"] isolation "data" backend "nccl"
    ```
    `color` and `key` are what each rank passes to ncclCommSplit. A mesh with a rank_map has no closed
    form: `members` then lists color and key by rank.
  }];
  let arguments = (ins FlatSymbolRefAttr:$group, I64Attr:$size, I64Attr:$count, AffineMapAttr:$color,
                       AffineMapAttr:$key, StrArray:$roles, StrAttr:$isolation, StrAttr:$backend,
                       OptionalAttr<DenseI64ArrayAttr>:$color_of, OptionalAttr<DenseI64ArrayAttr>:$key_of);
  let assemblyFormat = [{
    $group `size` $size `count` $count `color` $color `key` $key `roles` $roles `isolation` $isolation `backend` $backend attr-dict
  }];
  let hasVerifier = 1;
}

class Topo_SectionOp<string mnemonic, string text> : Topo_Op<mnemonic> {
  let summary = text;
  let arguments = (ins DictionaryAttr:$fields, OptionalAttr<StrArray>:$written);
  let assemblyFormat = "$fields attr-dict";
}

def Topo_MoeOp : Topo_SectionOp<"moe", "redundancy, exchange, placement of the experts">;
def Topo_AttentionOp : Topo_SectionOp<"attention", "how attention is split and stored">;
def Topo_EngramOp : Topo_SectionOp<"engram", "where Engram tables lie">;
def Topo_WorkloadOp : Topo_SectionOp<"workload", "what a step works on">;
def Topo_EngineOp : Topo_SectionOp<"engine", "lockstep: control plane and votes">;
def Topo_ScheduleOp : Topo_SectionOp<"schedule", "fusion and overlap">;

def Topo_SizesOp : Topo_Op<"sizes"> {
  let summary = "what follows from the file: engines, replicas, experts; written by --topo-derive-sizes";
  let description = [{
    ```mlir
    topo.sizes world 64 engines 64 replicas 1 tokens 60 experts 384 + 64 = 448, 7 a rank
    ```
    `engines` share no batch; `tokens` is the most one engine brings to a step. `engine_group` is the group
    whose ranks form one engine, or empty when every rank is one. Ranks from `serving` on hold Engram rows only
    (absent: all serve). Prefill: `sequences` is the most prompts of an engine, and under cp `mirror` the rows a
    rank has of the prompts' blocks.
  }];
  let arguments = (ins I64Attr:$world, I64Attr:$engines, I64Attr:$replicas, I64Attr:$tokens,
                       I64Attr:$logical, I64Attr:$extra, I64Attr:$physical, I64Attr:$local,
                       DenseI64ArrayAttr:$slots, StrAttr:$engine_group, OptionalAttr<I64Attr>:$serving,
                       OptionalAttr<I64Attr>:$sequences, OptionalAttr<I64Attr>:$mirror);
  let assemblyFormat = [{
    `world` $world `engines` $engines `replicas` $replicas `tokens` $tokens `experts` $logical `+` $extra `=` $physical `,` $local `a` `rank` `engine` $engine_group `slots` $slots attr-dict
  }];
}

#endif
