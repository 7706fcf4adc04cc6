//! A read-only ext4 filesystem, laid out without copying a byte.
//!
//! Sizes are known before, nothing ever changes afterwards: so there is no journal, no free block, every file is
//! contiguous, and all metadata lies in front of all data (`flex_bg`; `sparse_super2` without backups keeps the
//! groups free of superblock copies). The feature `read-only` keeps every kernel from writing.
//! Source: Linux `Documentation/filesystems/ext4/`; `e2fsck -fn` agrees.
//!
//! It is written by hand because `mke2fs -d` copies every byte of gigabytes of blobs into the filesystem, and no crate writes
//! ext4; here the metadata alone is made, and the blobs are copied once, into the image.
//!
//! ```text
//! block 0 superblock │ group descriptors │ block bitmaps │ inode bitmaps │ inode tables │ extent nodes │ folders │ files
//! ```

use std::collections::BTreeMap;

use uuid::Uuid;

use super::extents::{Extents, ExtentsError};
use super::{Content, SourceFile};

/// Size of a block in bytes.
pub const BLOCK: u64 = 4096;
const BLOCK_LEN: usize = 4096;
const BLOCKS_PER_GROUP: u64 = 8 * BLOCK;
const INODE_LEN: usize = 256;
const INODES_PER_BLOCK: u64 = BLOCK / INODE_LEN as u64;
const DESCRIPTOR_LEN: usize = 32;
/// Longest run of one extent in blocks (`ee_len`, initialised).
const EXTENT_BLOCKS: u64 = 32768;
/// Extents in an inode, and in a block of their own.
const EXTENTS_IN_INODE: usize = 4;
const EXTENTS_IN_BLOCK: usize = (BLOCK_LEN - 12) / 12;
const ROOT_INODE: u32 = 2;
/// First inode that is not reserved: by convention `lost+found`.
const FIRST_INODE: u32 = 11;
const MAX_NAME: usize = 255;

const MODE_DIR: u16 = 0o040_755;
const MODE_LOST_FOUND: u16 = 0o040_700;
const MODE_FILE: u16 = 0o100_444;
const FILE_TYPE_REGULAR: u8 = 1;
const FILE_TYPE_DIR: u8 = 2;
/// `i_flags`: the file's blocks are listed as extents.
const EXTENTS_FLAG: u32 = 0x8_0000;

const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_FILETYPE: u32 = 0x2;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_FLEX_BG: u32 = 0x200;
const RO_COMPAT_LARGE_FILE: u32 = 0x2;
const RO_COMPAT_DIR_NLINK: u32 = 0x20;
const RO_COMPAT_EXTRA_ISIZE: u32 = 0x40;
const RO_COMPAT_READONLY: u32 = 0x1000;

/// What a filesystem is called and when it was made.
#[derive(Debug, Clone)]
pub struct Identity {
    /// Volume label, at most 16 bytes.
    pub label: &'static str,
    /// Identity of the volume.
    pub uuid: Uuid,
    /// Time of every file, seconds since 1970.
    pub time: u32,
}

/// Why files cannot be laid out.
#[derive(Debug, thiserror::Error)]
pub enum Ext4Error {
    /// A path is absolute, has an empty, `.` or `..` part, or a part longer than 255 bytes.
    #[error("the path `{0}` cannot be stored")]
    Path(String),
    /// The same path twice, or a file where a folder is needed.
    #[error("the path `{0}` is there twice")]
    Twice(String),
    /// More than 4 billion blocks, or a file beyond what four extent nodes hold.
    #[error("`{0}` is too large for the filesystem")]
    TooLarge(String),
    /// A source could not be read, or has changed.
    #[error(transparent)]
    Source(#[from] ExtentsError),
}

/// A folder or file with its place.
#[derive(Debug)]
struct Node<'a> {
    kind: Kind<'a>,
    mode: u16,
    links: u16,
    bytes: u64,
    /// First block of the content, and of the extent nodes.
    start: u64,
    nodes_at: u64,
}

#[derive(Debug)]
enum Kind<'a> {
    Dir { parent: u32, entries: BTreeMap<&'a str, u32> },
    File(&'a Content),
}

impl Node<'_> {
    fn blocks(&self) -> u64 {
        self.bytes.div_ceil(BLOCK)
    }

    fn extents(&self) -> usize {
        usize::try_from(self.blocks().div_ceil(EXTENT_BLOCKS)).unwrap_or(usize::MAX)
    }

    /// Blocks of extents that do not fit into the inode.
    fn extent_nodes(&self) -> usize {
        if self.extents() <= EXTENTS_IN_INODE { 0 } else { self.extents().div_ceil(EXTENTS_IN_BLOCK) }
    }
}

/// Lays out `files`, whatever their order; the folders on their paths are made. All belongs to root and is world-readable.
pub fn build(files: &[SourceFile], identity: &Identity) -> Result<Extents, Ext4Error> {
    let mut tree = Tree::new();
    let mut sorted: Vec<&SourceFile> = files.iter().collect();
    sorted.sort_by_key(|file| &file.path);
    for file in sorted {
        tree.insert(&file.path, &file.content)?;
    }
    let geometry = tree.place()?;
    let mut image = Extents::new(geometry.blocks * BLOCK);
    image.push(0, &Content::Bytes(tree.metadata(&geometry, identity)))?;
    for node in &tree.nodes {
        if let Kind::File(content) = node.kind {
            image.push(node.start * BLOCK, content)?;
        }
    }
    Ok(image)
}

/// Where the parts of the filesystem lie; blocks.
#[derive(Debug)]
struct Geometry {
    blocks: u64,
    groups: u64,
    inodes_per_group: u64,
    bitmaps_at: u64,
    inode_bitmaps_at: u64,
    tables_at: u64,
    /// Extent nodes and folders follow the inode tables; file data follows here.
    data_at: u64,
}

impl Geometry {
    fn table_blocks(&self) -> u64 {
        self.inodes_per_group / INODES_PER_BLOCK
    }
}

/// All nodes; the index is the inode number less [`FIRST_INODE`], but for the root, which is first.
struct Tree<'a> {
    nodes: Vec<Node<'a>>,
}

impl<'a> Tree<'a> {
    fn new() -> Self {
        let mut tree = Self { nodes: Vec::new() };
        tree.nodes.push(Node::dir(ROOT_INODE, MODE_DIR));
        let lost_found = tree.add(Node::dir(ROOT_INODE, MODE_LOST_FOUND));
        if let Kind::Dir { entries, .. } = &mut tree.nodes[0].kind {
            entries.insert("lost+found", lost_found);
        }
        tree
    }

    fn index(inode: u32) -> usize {
        if inode == ROOT_INODE { 0 } else { (inode - FIRST_INODE) as usize + 1 }
    }

    fn inode(index: usize) -> u32 {
        if index == 0 { ROOT_INODE } else { u32::try_from(index - 1).expect("few files") + FIRST_INODE }
    }

    fn add(&mut self, node: Node<'a>) -> u32 {
        self.nodes.push(node);
        Self::inode(self.nodes.len() - 1)
    }

    fn insert(&mut self, path: &'a str, content: &'a Content) -> Result<(), Ext4Error> {
        let parts: Vec<&str> = path.split('/').collect();
        let (name, folders) = parts.split_last().ok_or_else(|| Ext4Error::Path(path.to_owned()))?;
        if parts.iter().any(|part| matches!(*part, "" | "." | "..") || part.len() > MAX_NAME) {
            return Err(Ext4Error::Path(path.to_owned()));
        }
        let mut dir = ROOT_INODE;
        for folder in folders {
            dir = self.folder(dir, folder).ok_or_else(|| Ext4Error::Twice(path.to_owned()))?;
        }
        let bytes = content.len();
        let node = Node { kind: Kind::File(content), mode: MODE_FILE, links: 1, bytes, start: 0, nodes_at: 0 };
        if node.extent_nodes() > EXTENTS_IN_INODE {
            return Err(Ext4Error::TooLarge(path.to_owned()));
        }
        let inode = self.add(node);
        let previous = match &mut self.nodes[Self::index(dir)].kind {
            Kind::Dir { entries, .. } => entries.insert(name, inode),
            Kind::File(_) => Some(inode),
        };
        if previous.is_some() { Err(Ext4Error::Twice(path.to_owned())) } else { Ok(()) }
    }

    /// The folder `name` in `parent`, made when it is not there; none when it is a file.
    fn folder(&mut self, parent: u32, name: &'a str) -> Option<u32> {
        let Kind::Dir { entries, .. } = &self.nodes[Self::index(parent)].kind else { return None };
        if let Some(inode) = entries.get(name) {
            return matches!(self.nodes[Self::index(*inode)].kind, Kind::Dir { .. }).then_some(*inode);
        }
        let inode = self.add(Node::dir(parent, MODE_DIR));
        let Kind::Dir { entries, .. } = &mut self.nodes[Self::index(parent)].kind else { return None };
        entries.insert(name, inode);
        Some(inode)
    }

    /// Gives every node its blocks and returns the places of everything else.
    fn place(&mut self) -> Result<Geometry, Ext4Error> {
        for index in 0..self.nodes.len() {
            self.size_folder(index);
        }
        let content: u64 = self.nodes.iter().map(|node| node.blocks() + node.extent_nodes() as u64).sum();
        let inodes = self.inodes();
        // The metadata's size depends on the number of groups and the other way round: grow until it fits.
        let mut groups = 1;
        let geometry = loop {
            let geometry = geometry(groups, inodes, content);
            if geometry.blocks <= groups * BLOCKS_PER_GROUP {
                break geometry;
            }
            groups = geometry.blocks.div_ceil(BLOCKS_PER_GROUP).max(groups + 1);
        };
        if u32::try_from(geometry.blocks).is_err() {
            return Err(Ext4Error::TooLarge("the content".to_owned()));
        }
        let mut free = geometry.tables_at + geometry.table_blocks() * geometry.groups;
        for node in &mut self.nodes {
            node.nodes_at = free;
            free += node.extent_nodes() as u64;
        }
        for folders in [true, false] {
            for node in self.nodes.iter_mut().filter(|node| matches!(node.kind, Kind::Dir { .. }) == folders) {
                node.start = free;
                free += node.blocks();
            }
        }
        let data_at = geometry.blocks - self.file_blocks();
        Ok(Geometry { data_at, ..geometry })
    }

    /// Inodes in use: the reserved ones, root among them, and the others.
    fn inodes(&self) -> u64 {
        u64::from(FIRST_INODE) - 1 + self.nodes.len() as u64 - 1
    }

    fn file_blocks(&self) -> u64 {
        self.nodes.iter().filter(|node| matches!(node.kind, Kind::File(_))).map(Node::blocks).sum()
    }

    /// Sets a folder's size and link count from its entries.
    fn size_folder(&mut self, index: usize) {
        let inode = Self::inode(index);
        let Kind::Dir { parent, entries } = &self.nodes[index].kind else { return };
        let is_dir = |inode: &&u32| matches!(self.nodes[Self::index(**inode)].kind, Kind::Dir { .. });
        let subfolders = entries.values().filter(is_dir).count();
        let bytes = self.folder_bytes(inode, *parent, entries).len() as u64;
        let node = &mut self.nodes[index];
        node.bytes = bytes;
        // More than 65000 are written as 1 (`dir_nlink`).
        node.links = u16::try_from(subfolders + 2).ok().filter(|links| *links < 65000).unwrap_or(1);
    }

    /// A folder's blocks: linear entries, none crossing a block, the last of a block reaching its end.
    fn folder_bytes(&self, inode: u32, parent: u32, entries: &BTreeMap<&str, u32>) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut last = 0;
        let dots = [(".", inode), ("..", parent)];
        for (name, inode) in dots.into_iter().chain(entries.iter().map(|(name, inode)| (*name, *inode))) {
            let len = entry_len(name);
            if bytes.len() / BLOCK_LEN != (bytes.len() + len - 1) / BLOCK_LEN {
                stretch_entry(&mut bytes, last);
            }
            last = bytes.len();
            let file_type = match self.nodes[Self::index(inode)].kind {
                Kind::Dir { .. } => FILE_TYPE_DIR,
                Kind::File(_) => FILE_TYPE_REGULAR,
            };
            bytes.extend(inode.to_le_bytes());
            bytes.extend(u16::try_from(len).expect("a name is short").to_le_bytes());
            bytes.extend([u8::try_from(name.len()).expect("a name is short"), file_type]);
            bytes.extend(name.as_bytes());
            bytes.resize(last + len, 0);
        }
        stretch_entry(&mut bytes, last);
        bytes
    }

    /// Everything in front of the files' data.
    fn metadata(&self, geometry: &Geometry, identity: &Identity) -> Vec<u8> {
        let mut image = vec![0; usize::try_from(geometry.data_at * BLOCK).expect("metadata fits into memory")];
        let mut put = |at: u64, bytes: &[u8]| {
            let at = usize::try_from(at).expect("metadata fits into memory");
            image[at..at + bytes.len()].copy_from_slice(bytes);
        };
        let inodes = self.inodes();
        put(1024, &superblock(geometry, inodes, identity));
        for group in 0..geometry.groups {
            let used_inodes = share(inodes, group, geometry.inodes_per_group);
            put(BLOCK + group * DESCRIPTOR_LEN as u64, &self.descriptor(geometry, group, used_inodes));
            // Every block is in use, and what lies behind the last one counts as used.
            put((geometry.bitmaps_at + group) * BLOCK, &[0xFF; BLOCK_LEN]);
            put((geometry.inode_bitmaps_at + group) * BLOCK, &inode_bitmap(used_inodes, geometry.inodes_per_group));
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let inode = Self::inode(index);
            let at = geometry.tables_at * BLOCK + u64::from(inode - 1) * INODE_LEN as u64;
            put(at, &encode_inode(node, identity.time));
            for (number, block) in extent_blocks(node).iter().enumerate() {
                put((node.nodes_at + number as u64) * BLOCK, block);
            }
            if let Kind::Dir { parent, entries } = &node.kind {
                put(node.start * BLOCK, &self.folder_bytes(inode, *parent, entries));
            }
        }
        image
    }

    fn descriptor(&self, geometry: &Geometry, group: u64, used_inodes: u64) -> [u8; DESCRIPTOR_LEN] {
        let range = group * geometry.inodes_per_group..(group + 1) * geometry.inodes_per_group;
        let is_here = |index: usize| range.contains(&u64::from(Self::inode(index) - 1));
        let is_dir = |index: &usize| matches!(self.nodes[*index].kind, Kind::Dir { .. }) && is_here(*index);
        let folders = (0..self.nodes.len()).filter(is_dir).count();
        let mut bytes = [0; DESCRIPTOR_LEN];
        let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
        put(0, &low32(geometry.bitmaps_at + group));
        put(4, &low32(geometry.inode_bitmaps_at + group));
        put(8, &low32(geometry.tables_at + group * geometry.table_blocks()));
        // No block is free; the last group ends with the filesystem.
        put(14, &low16(geometry.inodes_per_group - used_inodes));
        put(16, &low16(folders as u64));
        bytes
    }
}

impl Node<'_> {
    fn dir(parent: u32, mode: u16) -> Self {
        let kind = Kind::Dir { parent, entries: BTreeMap::new() };
        Self { kind, mode, links: 2, bytes: 0, start: 0, nodes_at: 0 }
    }
}

fn geometry(groups: u64, inodes: u64, content: u64) -> Geometry {
    let inodes_per_group = inodes.div_ceil(groups).next_multiple_of(INODES_PER_BLOCK);
    let bitmaps_at = 1 + (groups * DESCRIPTOR_LEN as u64).div_ceil(BLOCK);
    let inode_bitmaps_at = bitmaps_at + groups;
    let tables_at = inode_bitmaps_at + groups;
    let blocks = tables_at + groups * (inodes_per_group / INODES_PER_BLOCK) + content;
    Geometry { blocks, groups, inodes_per_group, bitmaps_at, inode_bitmaps_at, tables_at, data_at: 0 }
}

/// How many of `total` things fall into group `group` of `each`.
fn share(total: u64, group: u64, each: u64) -> u64 {
    total.saturating_sub(group * each).min(each)
}

/// An inode bitmap: the first `used` bits set, and those behind the `valid` ones, which stand for nothing.
fn inode_bitmap(used: u64, valid: u64) -> Vec<u8> {
    let bit = |number: u64| u8::from(number < used || number >= valid) << (number % 8);
    (0..BLOCK).map(|byte| (0..8).map(|low| bit(byte * 8 + low)).sum()).collect()
}

fn entry_len(name: &str) -> usize {
    (8 + name.len()).next_multiple_of(4)
}

/// Lets the entry that starts at `last` reach to the end of its block.
fn stretch_entry(bytes: &mut Vec<u8>, last: usize) {
    let end = bytes.len().next_multiple_of(BLOCK_LEN);
    bytes.resize(end, 0);
    let len = u16::try_from(end - last).expect("within a block");
    bytes[last + 4..last + 6].copy_from_slice(&len.to_le_bytes());
}

fn low32(number: u64) -> [u8; 4] {
    u32::try_from(number).expect("checked when placed").to_le_bytes()
}

fn low16(number: u64) -> [u8; 2] {
    u16::try_from(number).expect("at most a group's share").to_le_bytes()
}

/// `struct ext4_super_block`, as far as it is not zero.
fn superblock(geometry: &Geometry, used_inodes: u64, identity: &Identity) -> [u8; 1024] {
    let inodes = geometry.inodes_per_group * geometry.groups;
    let mut bytes = [0; 1024];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    let time = identity.time.to_le_bytes();
    put(0x00, &low32(inodes));
    put(0x04, &low32(geometry.blocks));
    put(0x10, &low32(inodes - used_inodes));
    put(0x18, &2_u32.to_le_bytes()); // s_log_block_size: 4096
    put(0x1C, &2_u32.to_le_bytes()); // s_log_cluster_size
    put(0x20, &low32(BLOCKS_PER_GROUP));
    put(0x24, &low32(BLOCKS_PER_GROUP)); // s_clusters_per_group
    put(0x28, &low32(geometry.inodes_per_group));
    put(0x30, &time); // s_wtime
    put(0x36, &u16::MAX.to_le_bytes()); // s_max_mnt_count: never
    put(0x38, &0xEF53_u16.to_le_bytes()); // s_magic
    put(0x3A, &1_u16.to_le_bytes()); // s_state: clean
    put(0x3C, &1_u16.to_le_bytes()); // s_errors: continue
    put(0x40, &time); // s_lastcheck
    put(0x4C, &1_u32.to_le_bytes()); // s_rev_level: dynamic
    put(0x54, &FIRST_INODE.to_le_bytes());
    put(0x58, &low16(INODE_LEN as u64));
    put(0x5C, &COMPAT_SPARSE_SUPER2.to_le_bytes());
    put(0x60, &(INCOMPAT_FILETYPE | INCOMPAT_EXTENTS | INCOMPAT_FLEX_BG).to_le_bytes());
    let read_only_compatible = RO_COMPAT_LARGE_FILE | RO_COMPAT_DIR_NLINK | RO_COMPAT_EXTRA_ISIZE | RO_COMPAT_READONLY;
    put(0x64, &read_only_compatible.to_le_bytes());
    put(0x68, identity.uuid.as_bytes());
    put(0x78, identity.label.as_bytes());
    put(0xEC, identity.uuid.as_bytes()); // s_hash_seed, unused without dir_index
    put(0xFC, &[1]); // s_def_hash_version: half MD4
    put(0x108, &time); // s_mkfs_time
    put(0x15C, &32_u16.to_le_bytes()); // s_min_extra_isize
    put(0x15E, &32_u16.to_le_bytes()); // s_want_extra_isize
    put(0x174, &[4]); // s_log_groups_per_flex
    bytes
}

/// `struct ext4_inode` with its extra fields.
fn encode_inode(node: &Node<'_>, time: u32) -> [u8; INODE_LEN] {
    let sectors = (node.blocks() + node.extent_nodes() as u64) * (BLOCK / 512);
    let time = time.to_le_bytes();
    let mut bytes = [0; INODE_LEN];
    let mut put = |at: usize, field: &[u8]| bytes[at..at + field.len()].copy_from_slice(field);
    put(0x00, &node.mode.to_le_bytes());
    put(0x04, &node.bytes.to_le_bytes()[..4]); // i_size_lo
    for field in [0x08, 0x0C, 0x10, 0x90] {
        put(field, &time); // i_atime, i_ctime, i_mtime, i_crtime
    }
    put(0x1A, &node.links.to_le_bytes());
    put(0x1C, &sectors.to_le_bytes()[..4]); // i_blocks_lo
    put(0x20, &EXTENTS_FLAG.to_le_bytes());
    put(0x28, &inline_extents(node));
    put(0x6C, &node.bytes.to_le_bytes()[4..]); // i_size_high
    put(0x74, &sectors.to_le_bytes()[4..6]); // i_blocks_high
    put(0x80, &32_u16.to_le_bytes()); // i_extra_isize
    bytes
}

/// `i_block`: the extents, or the list of the nodes that hold them.
fn inline_extents(node: &Node<'_>) -> Vec<u8> {
    let nodes = node.extent_nodes();
    if nodes == 0 {
        return extent_node(node, 0, EXTENTS_IN_INODE);
    }
    let mut bytes = extent_header(nodes, EXTENTS_IN_INODE, 1);
    for number in 0..nodes as u64 {
        bytes.extend(low32(number * EXTENTS_IN_BLOCK as u64 * EXTENT_BLOCKS)); // ei_block
        bytes.extend(low32(node.nodes_at + number)); // ei_leaf_lo
        bytes.extend([0; 4]);
    }
    bytes
}

/// The extent nodes outside the inode.
fn extent_blocks(node: &Node<'_>) -> Vec<Vec<u8>> {
    (0..node.extent_nodes()).map(|number| extent_node(node, number * EXTENTS_IN_BLOCK, EXTENTS_IN_BLOCK)).collect()
}

/// A leaf with up to `room` extents from extent number `first` on.
fn extent_node(node: &Node<'_>, first: usize, room: usize) -> Vec<u8> {
    let count = (node.extents() - first).min(room);
    let mut bytes = extent_header(count, room, 0);
    for number in first as u64..(first + count) as u64 {
        let logical = number * EXTENT_BLOCKS;
        bytes.extend(low32(logical)); // ee_block
        bytes.extend(low16((node.blocks() - logical).min(EXTENT_BLOCKS))); // ee_len
        bytes.extend([0; 2]); // ee_start_hi
        bytes.extend(low32(node.start + logical)); // ee_start_lo
    }
    bytes
}

fn extent_header(count: usize, room: usize, depth: u16) -> Vec<u8> {
    let mut bytes = 0xF30A_u16.to_le_bytes().to_vec(); // eh_magic
    for field in [low16(count as u64), low16(room as u64), depth.to_le_bytes()] {
        bytes.extend(field);
    }
    bytes.extend([0; 4]); // eh_generation
    bytes
}

#[cfg(test)]
#[path = "ext4_tests.rs"]
mod tests;
