use std::sync::Mutex;
use std::thread;

use rstest::rstest;

use super::*;

const VINO: &str = "default/v";

fn pool(subnet: &str, ranges: &[(&str, &str)]) -> IpPoolSpec {
    let mut pool = new_pool(subnet, "02:00:00:00:00:00");
    for (start, stop) in ranges {
        add_range(&mut pool, &range(start, stop).expect("a range")).expect("added");
    }
    pool
}

fn give(pool: &mut IpPoolSpec, (start, stop): (&str, &str), to: &str) -> Result<AllocatedIp, IpamError> {
    let range = Range { start: start.to_owned(), stop: stop.to_owned() };
    allocate(pool, &range, Want { vino: VINO, to, mac: None }, &BTreeSet::new())
}

/// The cases of Airship's own tests.
#[rstest]
#[case::ipv4("10.0.0.0/16", ("10.0.1.0", "10.0.1.9"), ("10.0.1.0", "10.0.1.9"), Ok("10.0.1.0"))]
#[case::ipv6("2600:1700:b030::/44", ("2600:1700:b030::1", "2600:1700:b030:9::"), ("2600:1700:b030::1", "2600:1700:b030:9::"), Ok("2600:1700:b030::1"))]
#[case::another_range("10.0.0.0/16", ("10.0.1.0", "10.0.1.9"), ("10.0.2.0", "10.0.2.9"), Err("IPAM range [10.0.2.0,10.0.2.9] in subnet 10.0.0.0/16 is not allocated"))]
#[case::bad_start("10.0.0.0/16", ("10.0.1.0", "10.0.1.9"), ("10.0.2.x", "10.0.2.9"), Err("is not allocated"))]
fn an_address_is_one_of_the_range(
    #[case] subnet: &str,
    #[case] has: (&str, &str),
    #[case] asked: (&str, &str),
    #[case] expected: Result<&str, &str>,
) {
    let given = give(&mut pool(subnet, &[has]), asked, "a");
    match expected {
        Ok(ip) => assert_eq!(given.expect("given").ip, ip),
        Err(words) => assert!(given.expect_err("refused").to_string().contains(words)),
    }
}

#[rstest]
#[case("10.0.0.1", "10.0.0.2", None)]
#[case("10.0.0.2", "10.0.0.1", Some("is invalid"))]
#[case("10.0.0.2.x", "10.0.0.1", Some("is invalid"))]
#[case("10.0.0.2", "10.0.0.1.x", Some("is invalid"))]
#[case("10.0.0.2", "fd00::1", Some("one end is an IPv4 address"))]
fn ends_make_a_range(#[case] start: &str, #[case] stop: &str, #[case] words: Option<&str>) {
    match (range(start, stop), words) {
        (Ok(range), None) => assert_eq!((range.start.as_str(), range.stop.as_str()), (start, stop)),
        (Err(error), Some(words)) => assert!(error.to_string().contains(words), "{error}"),
        (other, _) => panic!("{other:?}"),
    }
}

#[test]
fn a_range_that_shares_an_address_with_another_is_refused_and_the_same_again_is_not() {
    let mut pool = pool("10.0.0.0/16", &[("10.0.1.0", "10.0.1.9")]);
    let add = |pool: &mut IpPoolSpec, start: &str, stop: &str| add_range(pool, &range(start, stop).expect("a range"));
    add(&mut pool, "10.0.1.0", "10.0.1.9").expect("it is there already");
    add(&mut pool, "10.0.2.0", "10.0.2.9").expect("added");
    let why = add(&mut pool, "10.0.1.9", "10.0.1.20").expect_err("refused").to_string();
    assert!(why.contains("it overlaps with [10.0.1.0,10.0.1.9]"), "{why}");
    assert_eq!(pool.ranges.len(), 2);
}

#[rstest]
#[case("192.168.0.0/24", "ippool-192-168-0-0-24")]
#[case("0001:0000:0000:0001::/32", "ippool-0001-0000-0000-0001---32")]
#[case("FD00::/64", "ippool-fd00---64")]
fn a_pool_is_called_as_airship_calls_it(#[case] subnet: &str, #[case] name: &str) {
    assert_eq!(pool_name(subnet), name);
}

#[test]
fn whoever_has_an_address_gets_it_again_and_what_is_used_up_is_said() {
    let ends = ("192.168.0.1", "192.168.0.2");
    let mut pool = pool("192.168.0.0/24", &[ends]);
    let first = give(&mut pool, ends, "a").expect("given");
    assert_eq!((first.ip.as_str(), first.mac.as_str()), ("192.168.0.1", "02:00:00:00:00:00"));
    let second = give(&mut pool, ends, "b").expect("given");
    assert_eq!((second.ip.as_str(), second.mac.as_str()), ("192.168.0.2", "02:00:00:00:00:01"));
    assert_eq!(give(&mut pool, ends, "a").expect("the same"), first);
    let before = pool.clone();
    let why = give(&mut pool, ends, "c").expect_err("nothing is left").to_string();
    assert!(why.starts_with("IPAM range [192.168.0.1,192.168.0.2] in subnet 192.168.0.0/24 is exhausted"), "{why}");
    assert!(why.contains("2 of its addresses are given, and `c` needs one more"), "{why}");
    assert_eq!(pool, before, "nothing half done");
    free(&mut pool, VINO, &|to| to == "b", &[range(ends.0, ends.1).expect("a range")]);
    let third = give(&mut pool, ends, "c").expect("given");
    assert_eq!((third.ip, third.mac.as_str()), (first.ip, "02:00:00:00:00:02"), "a MAC address is not given twice");
}

#[test]
fn addresses_of_ipv6_are_counted_whole() {
    let ends = ("fd00::ffff:ffff:ffff:ffff", "fd00:0:0:1::1");
    let mut pool = pool("fd00::/48", &[ends]);
    let ips: Vec<String> = ["a", "b", "c"].map(|to| give(&mut pool, ends, to).expect("given").ip).to_vec();
    assert_eq!(ips, ["fd00::ffff:ffff:ffff:ffff", "fd00:0:0:1::", "fd00:0:0:1::1"]);
    assert!(give(&mut pool, ends, "d").expect_err("nothing is left").to_string().contains("is exhausted"));
    let last = ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff");
    let mut edge = self::pool("ffff::/16", &[last]);
    give(&mut edge, last, "a").expect("the very last");
    assert!(give(&mut edge, last, "b").is_err());
}

#[test]
fn nobody_gets_the_address_of_a_network_or_of_all_its_hosts() {
    let ends = ("10.0.0.0", "10.0.0.3");
    let mut pool = pool("10.0.0.0/30", &[ends]);
    assert_eq!(["a", "b"].map(|to| give(&mut pool, ends, to).expect("given").ip), ["10.0.0.1", "10.0.0.2"]);
    assert!(give(&mut pool, ends, "c").is_err());
    let ends = ("fd00::", "fd00::2");
    let mut pool = self::pool("fd00::/64", &[ends]);
    assert_eq!(["a", "b"].map(|to| give(&mut pool, ends, to).expect("given").ip), ["fd00::1", "fd00::2"]);
    let within = |start, stop| reserved_in("10.0.0.0/24", &range(start, stop).expect("a range"));
    assert_eq!(within("10.0.0.1", "10.0.0.254"), None);
    assert_eq!(within("10.0.0.9", "10.0.0.255"), Some([10, 0, 0, 255].into()));
}

/// A range that moves takes the addresses with it, and leaves the MAC addresses.
#[test]
fn a_mac_address_stays_when_the_address_is_another_one() {
    let (old, new) = (("10.0.1.1", "10.0.1.9"), ("10.0.2.1", "10.0.2.9"));
    let mut pool = pool("10.0.0.0/16", &[old, new]);
    give(&mut pool, old, "z").expect("given");
    let before = give(&mut pool, old, "a").expect("given");
    let after = give(&mut pool, new, "a").expect("given");
    assert_eq!((after.mac, after.ip.as_str()), (before.mac, "10.0.2.1"));
    assert_eq!(pool.allocated_ips.len(), 2);
    // Another subnet is another pool: he brings his own.
    let mac = "52:54:00:00:00:07".parse().ok();
    let mut other = self::pool("10.1.0.0/16", &[("10.1.0.1", "10.1.0.9")]);
    let ends = range("10.1.0.1", "10.1.0.9").expect("a range");
    let moved = allocate(&mut other, &ends, Want { vino: VINO, to: "a", mac }, &BTreeSet::new()).expect("given");
    assert_eq!(moved.mac, "52:54:00:00:00:07");
}

/// The addresses behind the last one of a prefix are those of groups, and there are 2^40 of them.
#[test]
fn mac_addresses_go_on_at_the_beginning_of_their_prefix_and_are_never_those_of_groups() {
    let ends = ("10.0.1.1", "10.0.1.9");
    let mut pool = IpPoolSpec { next_mac: "52:ff:ff:ff:ff:ff".to_owned(), ..pool("10.0.0.0/16", &[ends]) };
    let macs = ["a", "b"].map(|to| give(&mut pool, ends, to).expect("given").mac);
    assert_eq!(macs, ["52:ff:ff:ff:ff:ff", "52:00:00:00:00:00"]);
    pool.next_mac = "53:00:00:00:00:00".to_owned();
    let why = give(&mut pool, ends, "c").expect_err("a group").to_string();
    assert!(why.contains("`53:00:00:00:00:00` is invalid, expected one of a single interface"), "{why}");
}

#[test]
fn another_prefix_is_for_those_that_come_after_it() {
    let ends = ("10.0.1.1", "10.0.1.9");
    let mut pool = pool("10.0.0.0/16", &[ends]);
    let first = give(&mut pool, ends, "a").expect("given");
    assert_eq!(with_prefix(pool.clone(), "02:00:00:00:00:00"), pool, "the same again is no news");
    pool = with_prefix(pool, "52:54:00:00:00:00");
    assert_eq!(give(&mut pool, ends, "a").expect("the same"), first);
    assert_eq!(give(&mut pool, ends, "b").expect("given").mac, "52:54:00:00:00:00");
}

/// What is advised where a range is exhausted.
#[test]
fn a_range_is_made_larger_and_smaller_while_its_addresses_are_in_use() {
    let (old, new) = (("10.0.1.1", "10.0.1.2"), ("10.0.1.1", "10.0.1.9"));
    let mut pool = pool("10.0.0.0/16", &[old]);
    let given = ["a", "b"].map(|to| give(&mut pool, old, to).expect("given"));
    let wanted = range(new.0, new.1).expect("a range");
    free(&mut pool, VINO, &|_| true, std::slice::from_ref(&wanted));
    add_range(&mut pool, &wanted).expect("added");
    assert_eq!(pool.ranges, std::slice::from_ref(&wanted));
    assert_eq!(["a", "b"].map(|to| give(&mut pool, new, to).expect("the same")), given);
    assert_eq!(give(&mut pool, new, "c").expect("given").ip, "10.0.1.3");
    let narrow = range("10.0.1.3", "10.0.1.5").expect("a range");
    free(&mut pool, VINO, &|_| true, std::slice::from_ref(&narrow));
    assert_eq!(pool.ranges, []);
    // Where another one has an address, the range is his, too.
    pool.allocated_ips[0].vino = "other/v".to_owned();
    pool.ranges = vec![wanted.clone()];
    free(&mut pool, VINO, &|_| true, std::slice::from_ref(&narrow));
    assert_eq!(pool.ranges, [wanted]);
    assert!(add_range(&mut pool, &narrow).is_err());
}

/// There two networks without a prefix of their own began with the same address.
#[test]
fn mac_addresses_of_other_pools_are_not_given() {
    let ends = ("10.0.1.1", "10.0.1.9");
    let mut pool = pool("10.0.0.0/16", &[ends]);
    let taken = ["02:00:00:00:00:00", "02:00:00:00:00:01"].map(|mac| mac.parse().expect("a MAC")).into();
    let ends = range(ends.0, ends.1).expect("a range");
    let given = allocate(&mut pool, &ends, Want { vino: VINO, to: "a", mac: None }, &taken).expect("given");
    assert_eq!(given.mac, "02:00:00:00:00:02");
}

#[test]
fn what_another_vino_gave_is_neither_given_nor_taken_back() {
    let ends = ("10.0.1.1", "10.0.1.9");
    let mut pool = pool("10.0.0.0/16", &[ends]);
    give(&mut pool, ends, "a").expect("given");
    let ends = range(ends.0, ends.1).expect("a range");
    let want = Want { vino: "other/v", to: "a", mac: None };
    let why = allocate(&mut pool, &ends, want, &BTreeSet::new()).expect_err("refused").to_string();
    assert!(why.contains("from Vino `default/v`"), "{why}");
    free(&mut pool, "other/v", &|_| false, &[]);
    assert!(!is_idle(&pool) && pool.ranges.len() == 1);
    free(&mut pool, VINO, &|_| false, &[]);
    assert!(is_idle(&pool) && pool.ranges.is_empty());
}

#[test]
fn each_node_has_a_piece_of_the_addresses_for_dhcp() {
    let mut pool = pool("192.168.2.0/20", &[]);
    let all = range("192.168.4.0", "192.168.4.191").expect("a range");
    let mut piece =
        |node: &str| allocate_piece(&mut pool, &all, 6, VINO, node).map(|it| format!("{}-{}", it.start, it.stop));
    assert_eq!(piece("n1").expect("given"), "192.168.4.0-192.168.4.63");
    assert_eq!(piece("n2").expect("given"), "192.168.4.64-192.168.4.127");
    assert_eq!(piece("n1").expect("the same"), "192.168.4.0-192.168.4.63");
    assert_eq!(piece("n3").expect("given"), "192.168.4.128-192.168.4.191");
    let why = piece("n4").expect_err("nothing is left").to_string();
    assert!(why.contains("nodes have 3 pieces of 64 addresses, and node `n4` needs one more"), "{why}");
    free(&mut pool, VINO, &|to| to == "n1" || to == "n3", &[]);
    assert_eq!(allocate_piece(&mut pool, &all, 6, VINO, "n4").expect("given").start, "192.168.4.64");
    // Another step is another piece.
    let other = allocate_piece(&mut pool, &range("192.168.5.0", "192.168.5.255").expect("a range"), 4, VINO, "n1");
    assert_eq!(other.expect("given").stop, "192.168.5.15");
}

#[test]
fn a_network_is_a_range() {
    let ends = |subnet: &str| whole(subnet).map(|it| (it.start, it.stop));
    let text = |a: &str, b: &str| (a.to_owned(), b.to_owned());
    assert_eq!(ends("192.168.4.7/22"), Ok(text("192.168.4.0", "192.168.7.255")));
    assert_eq!(ends("fd00::/64"), Ok(text("fd00::", "fd00::ffff:ffff:ffff:ffff")));
    assert_eq!(ends("0.0.0.0/0"), Ok(text("0.0.0.0", "255.255.255.255")));
    assert!(ends("192.168.4.7").is_err());
}

/// VIN-2: a thousand at once, on a store that takes a change only of who read its last version, as the API server does.
#[test]
fn a_thousand_at_once_have_a_thousand_addresses() {
    let ends = ("10.0.0.1", "10.0.7.255");
    let store = Mutex::new((0u64, pool("10.0.0.0/16", &[ends])));
    let read = || store.lock().expect("the store").clone();
    let swap = |version: u64, pool: IpPoolSpec| {
        let mut now = store.lock().expect("the store");
        let fits = now.0 == version;
        if fits {
            *now = (version + 1, pool);
        }
        fits
    };
    let conflicts = Mutex::new(0);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (read, swap, conflicts) = (&read, &swap, &conflicts);
            scope.spawn(move || {
                for number in 0..125 {
                    let to = format!("host-{thread}-{number}/management");
                    loop {
                        let (version, mut pool) = read();
                        give(&mut pool, ends, &to).expect("given");
                        if swap(version, pool) {
                            break;
                        }
                        *conflicts.lock().expect("a count") += 1;
                    }
                }
            });
        }
    });
    let (_, pool) = read();
    let ips: BTreeSet<&str> = pool.allocated_ips.iter().map(|one| one.ip.as_str()).collect();
    let macs: BTreeSet<&str> = pool.allocated_ips.iter().map(|one| one.mac.as_str()).collect();
    assert_eq!((pool.allocated_ips.len(), ips.len(), macs.len()), (1000, 1000, 1000));
    assert!(*conflicts.lock().expect("a count") > 0, "they met");
}
