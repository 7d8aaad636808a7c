fn main() {
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let s = staffetta_apiserver::ApiServer::start(staffetta_apiserver::Options { listen: "127.0.0.1:18080".parse().unwrap(), ..Default::default() }).await.unwrap();
        std::fs::write("/tmp/emb.kubeconfig", s.kubeconfig()).unwrap();
        println!("{}", s.url());
        tokio::time::sleep(std::time::Duration::from_secs(36000)).await;
    });
}
