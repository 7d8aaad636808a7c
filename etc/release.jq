# The bill of materials of a release (CycloneDX 1.6) from the output of `cargo metadata`. $crates has a line `NAME VERSION` for each crate
# of the programs, $checksums a line `NAME VERSION SHA256` for each crate of the registry.

def words: split("\n") | map(select(. != "") | split(" "));
def url: "pkg:cargo/\(.name)@\(.version)";

($crates | words | map({key: "\(.[0]) \(.[1])", value: true}) | from_entries) as $linked
| ($checksums | words | map({key: "\(.[0]) \(.[1])", value: .[2]}) | from_entries) as $digests
| (.packages | map(select($linked["\(.name) \(.version)"]))) as $packages
| ($packages | map({key: .id, value: url}) | from_entries) as $urls
| {
    bomFormat: "CycloneDX",
    specVersion: "1.6",
    version: 1,
    metadata: {
      timestamp: $date,
      component: {type: "application", "bom-ref": "release", name: "staffetta", version: $version, licenses: [{expression: "Apache-2.0"}]}
    },
    components: $packages | map(
      {type: "library", "bom-ref": url, name, version, purl: url}
      + (if .license then {licenses: [{expression: (.license | gsub("/"; " OR "))}]} else {} end)
      + ($digests["\(.name) \(.version)"] as $digest | if $digest then {hashes: [{alg: "SHA-256", content: $digest}]} else {} end)
    ) | sort_by(."bom-ref"),
    dependencies: ([{ref: "release", dependsOn: [$packages[] | select(.name == "staffetta" or .name == "staffetta-cni") | url] | sort}] + [
      .resolve.nodes[] | select($urls[.id]) | {
        ref: $urls[.id],
        dependsOn: [.deps[] | select(any(.dep_kinds[]; .kind == null)) | $urls[.pkg] | select(.)] | unique
      }
    ]) | sort_by(.ref)
  }
