/* Recognises corpora on network file systems. */
#include <sys/vfs.h>

#include "common/corpus/corpus.h"

static const struct {
  uint32_t magic;
  const char *kind;
} remote_kinds[] = {
    {0x6969, "NFS"},          {0xff534d42, "CIFS"},   {0xfe534d42, "SMB2"}, {0x517b, "SMB"},
    {0x65735546, "FUSE"},     {0x0bd00bd0, "Lustre"}, {0x00c36400, "Ceph"}, {0x47504653, "GPFS"},
    {0x19830326, "BeeGFS"},   {0x5346414f, "AFS"},    {0x6b414653, "AFS"},  {0x01021997, "9P"},
    {0x20030528, "OrangeFS"}, {0x73757245, "Coda"},   {0x564c, "NCP"},      {0x7461636f, "OCFS2"},
    {0x01161970, "GFS2"},     {0xaad7aaea, "PanFS"},
};

const char *plm_corpus_remote_kind(const char *path)
{
  struct statfs information;
  if (statfs(path, &information) != 0) return NULL; /* opening it will report the error */
  for (size_t i = 0; i < sizeof remote_kinds / sizeof remote_kinds[0]; i++)
    if (remote_kinds[i].magic == (uint32_t)information.f_type) return remote_kinds[i].kind;
  return NULL;
}

plm_status plm_corpus_check_local(const char *directory, struct plm_error *error)
{
  const char *kind = plm_corpus_remote_kind(directory);
  if (kind == NULL) return PLM_OK;
  plm_error_set(error, PLM_CONFIG, "%s lies on a remote file system (%s)", directory, kind);
  return plm_error_hint(
      error, "let packers copy it to a local disk (packer.cache: DIR, plm-packer --cache "
             "DIR), or read it where it is (packer.allow_remote: true, --allow-remote)");
}
