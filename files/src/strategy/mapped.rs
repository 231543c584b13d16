//! `map`: the client Reads the file by an STag over a mapping of it, which is kept for the next
//! client. Octets go from there to TCP without a copy, so nobody may change the file: the owner
//! promises that with `--immutable`.

use std::sync::Arc;
use std::sync::{Mutex, PoisonError};

use rddp_command::failure::Failure;
use rddp_rnic::{Access, FileMapping, MemoryRegion};
use rddp_stat::Counter;

use super::{Gift, Given, Strategy};
use crate::source::{Source, Version};

/// Mappings that are kept. Each keeps its octets on the disk, also once the file has no name.
const KEPT: usize = 64;

pub(crate) struct Mapped;

impl Strategy for Mapped {
    const NAME: &'static str = "map";
    const COUNTER: Counter = Counter::OctetsByMap;
    const IS_RANGE: bool = true;

    async fn memory(gift: &mut Gift<'_>) -> Result<Option<MemoryRegion>, Failure> {
        let Some(mapping) = gift.mappings.of(gift.source) else { return Ok(None) };
        let (end, left) = (mapping.len(), gift.source.left());
        // As long as the file, and so no shorter than what is left of it.
        let start = end - left as usize;
        let access = Access::REMOTE_READ | Access::STABLE;
        Ok(gift.talk.end.pd.register_mapping(&mapping, start..end, access).ok())
    }

    async fn give(gift: &mut Gift<'_>, _memory: &Arc<MemoryRegion>) -> Result<Given, Failure> {
        gift.until_done().await
    }
}

/// The mappings of the files that were given last, the latest at the end.
#[derive(Default)]
pub(crate) struct Mappings(Mutex<Vec<Kept>>);

struct Kept {
    name: String,
    version: Version,
    mapping: FileMapping,
}

impl Mappings {
    /// Returns the mapping of a file; `None` if it cannot be mapped.
    fn of(&self, source: &Source) -> Option<FileMapping> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = list.iter().position(|kept| kept.version == *source.version());
        let kept = match known {
            Some(at) => list.remove(at),
            None => Kept {
                name: source.name().to_owned(),
                version: source.version().clone(),
                mapping: FileMapping::new(&source.file()).ok()?,
            },
        };
        let mapping = kept.mapping.clone();
        // Another file of this name was replaced by this one.
        list.retain(|other| other.name != kept.name);
        list.push(kept);
        if list.len() > KEPT {
            list.remove(0);
        }
        (mapping.len() as u64 == source.size()).then_some(mapping)
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::path::Path;

    use rddp_rnic::Rnic;

    use super::*;
    use crate::checksum::Check;
    use crate::tasks::Hub;

    fn source(path: &Path, name: &str) -> Source {
        let hub = Hub::new(&Rnic::open().unwrap()).unwrap();
        hub.run(Source::new(File::open(path).unwrap(), name, Check::Crc32c, &hub)).unwrap().unwrap()
    }

    fn names(mappings: &Mappings) -> Vec<String> {
        mappings.0.lock().unwrap().iter().map(|kept| kept.name.clone()).collect()
    }

    #[test]
    fn the_files_that_were_given_last_stay_mapped() {
        let dir = tempfile::tempdir().unwrap();
        let mappings = Mappings::default();
        let of = |name: &str, octets: &str| {
            let path = dir.path().join(name);
            if !octets.is_empty() {
                fs::write(&path, octets).unwrap();
            }
            mappings.of(&source(&path, name)).unwrap().len()
        };
        (0..KEPT).for_each(|number| assert_eq!(of(&number.to_string(), "four"), 4));
        // The first comes last, and the second has to go.
        assert_eq!((of("0", ""), of("more", "of it")), (4, 5));
        let kept = names(&mappings);
        assert_eq!((kept.len(), &*kept[0], &*kept[KEPT - 2], &*kept[KEPT - 1]), (KEPT, "2", "0", "more"));
        // A file that has been replaced is not kept.
        fs::remove_file(dir.path().join("more")).unwrap();
        assert_eq!(of("more", "others"), 6);
        assert_eq!(names(&mappings), kept);
    }
}
