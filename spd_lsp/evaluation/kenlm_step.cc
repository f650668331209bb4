/* KenLM asked about all candidates of a step in one call: for the comparison of structures only.
   Compiled where the comparison runs, if KenLM's headers and libraries are beside its programs. */

#include "lm/virtual_interface.hh"
#include "lm/model.hh"

#include <stdint.h>

#include <vector>

namespace {

struct Asked {
    lm::base::Model *model;
    std::vector<lm::WordIndex> words; /* id -> KenLM's number of that word */
};

} // namespace

extern "C" {

/* Maps the model; null if it cannot. */
void *open_model(const char *path, const char *const *words, int32_t number)
{
    try {
        lm::ngram::Config config;
        config.load_method = util::LAZY;
        Asked *asked = new Asked;
        asked->model = lm::ngram::LoadVirtual(path, config);
        for (int32_t i = 0; i < number; i++)
            asked->words.push_back(asked->model->BaseVocabulary().Index(words[i]));
        return asked;
    } catch (...) {
        return 0;
    }
}

int64_t state_size() { return sizeof(lm::ngram::State); }

/* The state after some ids, from nothing. */
void read(const void *opened, const int64_t *ids, int32_t number, void *state)
{
    const Asked &asked = *static_cast<const Asked *>(opened);
    lm::ngram::State before;
    asked.model->NullContextWrite(state);
    for (int32_t i = 0; i < number; i++) {
        before = *static_cast<lm::ngram::State *>(state);
        asked.model->BaseScore(&before, asked.words[ids[i]], state);
    }
}

/* states: of each draft before its newest id; newest [drafts]; candidates [number]; logs [drafts, number]. */
void step(const void *opened, const lm::ngram::State *states, const int64_t *newest, int32_t drafts,
          const int64_t *candidates, int32_t number, float *logs)
{
    const Asked &asked = *static_cast<const Asked *>(opened);
    lm::ngram::State here, after;
    for (int32_t k = 0; k < drafts; k++) {
        asked.model->BaseScore(states + k, asked.words[newest[k]], &here);
        for (int32_t c = 0; c < number; c++)
            *logs++ = asked.model->BaseScore(&here, asked.words[candidates[c]], &after);
    }
}
}
