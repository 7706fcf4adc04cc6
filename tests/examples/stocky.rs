fn main() {
    let s = foothold_tests::Appliance::get().stock_cluster();
    println!("{} entries", s.entries.len());
    std::fs::write("/tmp/stock.json", serde_json::to_string(&s.entries).unwrap()).unwrap();
    for (n, t) in &s.manifests {
        std::fs::write(format!("/tmp/stock-{n}.yaml"), t).unwrap();
    }
}
