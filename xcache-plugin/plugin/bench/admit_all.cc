// A decision plugin that admits every file at once: what it costs the server to ask one at all. pfc 5.5 parses the URL of each open for it.
#include "XrdPfc/XrdPfcDecision.hh"
#include "XrdVersion.hh"

namespace {

class AdmitAll : public XrdPfc::Decision {
 public:
  bool Decide(const std::string&, XrdOss&) const override { return true; }
};

}  // namespace

#pragma GCC visibility push(default)
XrdVERSIONINFO(XrdPfcGetDecision, admitall);
#pragma GCC visibility pop

extern "C" __attribute__((visibility("default"))) XrdPfc::Decision* XrdPfcGetDecision(XrdSysError&) { return new AdmitAll; }
