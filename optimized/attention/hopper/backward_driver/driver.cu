// Checks and times the Hopper backward alone.
#include <cstdio>
#include <cstdlib>
#include <cmath>
#include <vector>
#include <random>
#include <algorithm>
#include <string>
#include <cuda_runtime.h>
#include "optimized/attention/hopper/kernels.h"
#include "optimized/attention/heads.h"
#include "optimized/tables/work_list.h"
#include "reference/seen_rows.h"
#include <cuda_bf16.h>
#include <cuda_fp16.h>
namespace ringside::mma { cudaError_t backward_queries(const BackwardArguments&, cudaStream_t){return cudaSuccess;} }
using namespace ringside;
#define CK(x) do{cudaError_t e=(x); if(e!=cudaSuccess){printf("CUDA %s at %d\n",cudaGetErrorString(e),__LINE__);exit(3);}}while(0)
struct Doc{int lq,lk;};
struct Pack{ std::string name; std::vector<Doc> docs; Mask mask; int heads, kv_heads; int dim; int pad=0; int pos_split=0; int dimv=0; };
template<class T> __device__ double to_d(T x){return (double)(float)x;}
__global__ void fill(void* p,int64_t n,int type,uint32_t seed,float scale){
  for(int64_t i=blockIdx.x*(int64_t)blockDim.x+threadIdx.x;i<n;i+=(int64_t)gridDim.x*blockDim.x){
    uint32_t h=(uint32_t)i*2654435761u^seed; h^=h>>16;h*=0x85ebca6b;h^=h>>13;h*=0xc2b2ae35;h^=h>>16;
    uint32_t g=h*747796405u+2891336453u; g^=g>>15; g*=0x2c1b3c6d; g^=g>>12;g*=0x297a2d39;g^=g>>15;
    float u=((h>>8)+1)*(1.f/16777217.f), v=(g>>8)*(1.f/16777216.f);
    float x=sqrtf(-2*logf(u))*cospif(2*v)*scale;
    if(type==0)((float*)p)[i]=x; else if(type==1)((__half*)p)[i]=__float2half(x); else ((__nv_bfloat16*)p)[i]=__float2bfloat16(x);
  }}
struct Ref{ const void*q,*k,*v,*dout; const float*lse,*delta; int H,KH,D,DV; float scale; Mask mask; int type; };
__device__ double at(const void*p,int type,int64_t i){return type==1?(double)__half2float(((const __half*)p)[i]):(double)__bfloat162float(((const __nv_bfloat16*)p)[i]);}
// one block a (key row, kv head): list of rows
struct Row{int row,pos; int other_row,len_q,len_k; }; // other_row: first row of the other side's document
__global__ void ref_dkv(Ref r,const Row*rows,double*dk,double*dv){
  const Row w=rows[blockIdx.x]; const int kh=blockIdx.y, G=r.H/r.KH, t=threadIdx.x;
  __shared__ double p[128],ds[128];
  double adk=0,adv=0;
  for(int h=kh*G;h<kh*G+G;++h) for(int q0=0;q0<w.len_q;q0+=128){
    const int q=q0+t; double pp=0,dd=0;
    if(q<w.len_q && r.mask.allows(q,w.pos,w.len_q,w.len_k)){
      const int64_t qr=(int64_t)(w.other_row+q)*r.H+h, kr=(int64_t)w.row*r.KH+kh;
      double s=0,dp=0; for(int d=0;d<r.D;++d) s+=at(r.q,r.type,qr*r.D+d)*at(r.k,r.type,kr*r.D+d);
      for(int d=0;d<r.DV;++d) dp+=at(r.dout,r.type,qr*r.DV+d)*at(r.v,r.type,kr*r.DV+d);
      pp=exp(s*r.scale-(double)r.lse[qr]); dd=pp*(dp-(double)r.delta[qr])*r.scale; }
    p[t]=pp;ds[t]=dd; __syncthreads();
    for(int i=0;i<128&&q0+i<w.len_q;++i) if(p[i]!=0){ const int64_t qr=(int64_t)(w.other_row+q0+i)*r.H+h;
      if(t<r.D) adk+=ds[i]*at(r.q,r.type,qr*r.D+t); if(t<r.DV) adv+=p[i]*at(r.dout,r.type,qr*r.DV+t);}
    __syncthreads(); }
  const int64_t o=((int64_t)blockIdx.x*r.KH+kh)*128; dk[o+t]=adk; dv[o+t]=adv; }
__global__ void ref_dq(Ref r,const Row*rows,double*dq){
  const Row w=rows[blockIdx.x]; const int h=blockIdx.y, G=r.H/r.KH, kh=h/G, t=threadIdx.x;
  __shared__ double ds[128]; double a=0; const int64_t qr=(int64_t)w.row*r.H+h;
  for(int k0=0;k0<w.len_k;k0+=128){ const int k=k0+t; double dd=0;
    if(k<w.len_k && r.mask.allows(w.pos,k,w.len_q,w.len_k)){ const int64_t kr=(int64_t)(w.other_row+k)*r.KH+kh;
      double s=0,dp=0; for(int d=0;d<r.D;++d) s+=at(r.q,r.type,qr*r.D+d)*at(r.k,r.type,kr*r.D+d);
      for(int d=0;d<r.DV;++d) dp+=at(r.dout,r.type,qr*r.DV+d)*at(r.v,r.type,kr*r.DV+d);
      dd=exp(s*r.scale-(double)r.lse[qr])*(dp-(double)r.delta[qr])*r.scale; }
    ds[t]=dd; __syncthreads();
    for(int i=0;i<128&&k0+i<w.len_k;++i) if(ds[i]!=0&&t<r.D) a+=ds[i]*at(r.k,r.type,((int64_t)(w.other_row+k0+i)*r.KH+kh)*r.D+t);
    __syncthreads(); }
  dq[((int64_t)blockIdx.x*r.H+h)*128+t]=a; }
__global__ void set_lse(Ref r,const Row*rows,float*lse,float*delta,float dl,int H,bool zero){ // plausible
  const Row w=rows[blockIdx.x]; const int h=threadIdx.x; if(h>=H) return; const Interval v=r.mask.visible(w.pos,w.len_q,w.len_k);
  const int64_t i=(int64_t)w.row*H+h; lse[i]= v.size()>0? logf((float)v.size())+0.5f : -INFINITY; delta[i]=0.01f*((w.row*7+h*13)%29-14); }
__global__ void nan_rows(void*p,const int*rows,int n,int cells){ // 16 bit
  const int r=rows[blockIdx.x]; for(int i=threadIdx.x;i<cells;i+=blockDim.x) ((uint16_t*)p)[(int64_t)r*cells+i]=0x7fff; }
struct Lists{std::vector<WorkItem> items; std::vector<Segment> partners;};
Lists key_lists(const Pack&p,const std::vector<int>&rowq,const std::vector<int>&rowk){
  struct W{int64_t w;WorkItem i;}; std::vector<W> ws; Lists l;
  for(size_t s=0;s<p.docs.size();++s){ const Doc&d=p.docs[s]; const SequenceMask m{p.mask,d.lq,d.lk}; Segment k{(int)s,0,1,rowk[s],d.lk};
    const int first=l.partners.size();
    if(p.pos_split){ for(int b=0;b<d.lq;b+=p.pos_split) l.partners.push_back({(int)s,b,1,rowq[s]+b,std::min(p.pos_split,d.lq-b)}); }
    else if(d.lq>0) l.partners.push_back({(int)s,0,1,rowq[s],d.lq});
    const int last=l.partners.size();
    for(int b=0;b<d.lk;b+=128){ WorkItem it{k,b,std::min(b+128,d.lk),first,last,d.lq,d.lk}; int64_t rows=0;
      for(int i=first;i<last;++i) rows+=queries_seeing(m,l.partners[i],k,it.begin,it.end).size();
      if(rows) ws.push_back({rows*(it.end-it.begin),it}); } }
  std::stable_sort(ws.begin(),ws.end(),[](auto&a,auto&b){return a.w>b.w;}); for(auto&w:ws) l.items.push_back(w.i); return l; }
template<class V> V* up(const std::vector<V>&v){ V*p; CK(cudaMalloc(&p,std::max<size_t>(1,v.size())*sizeof(V))); CK(cudaMemcpy(p,v.data(),v.size()*sizeof(V),cudaMemcpyHostToDevice)); return p;}
float rd(const void*p,int type,int64_t i){ if(type==0) return ((const float*)p)[i]; uint16_t b=((const uint16_t*)p)[i]; if(type==2){uint32_t u=(uint32_t)b<<16; float f; memcpy(&f,&u,4); return f;} __half h; memcpy(&h,&b,2); return __half2float(h);}
int bad=0;
void run(const Pack&p,int type,bool time,Accumulate acc=Accumulate::only,bool det=false,bool alone=false,int stride_check=1){
  const int D=p.dim,DV=p.dimv?p.dimv:p.dim,H=p.heads,KH=p.kv_heads; std::vector<int> rowq,rowk; int rq=3,rk=5; std::vector<int> padq{0,1,2},padk{0,1,2,3,4};
  for(auto&d:p.docs){ rowq.push_back(rq); rowk.push_back(rk); rq+=d.lq; rk+=d.lk; for(int i=0;i<p.pad;++i){padq.push_back(rq++);padk.push_back(rk++);} }
  const int RQ=rq+2,RK=rk+2; padq.push_back(rq);padq.push_back(rq+1);padk.push_back(rk);padk.push_back(rk+1);
  const int64_t nq=(int64_t)RQ*H*D,nk=(int64_t)RK*KH*D,nv=(int64_t)RK*KH*DV,no=(int64_t)RQ*H*DV;
  void *q,*k,*v,*o,*dq,*dk,*dv; float*lse,*delta; CK(cudaMalloc(&q,nq*2));CK(cudaMalloc(&k,nk*2));CK(cudaMalloc(&v,nv*2));CK(cudaMalloc(&o,no*2));
  CK(cudaMalloc(&dq,nq*4));CK(cudaMalloc(&dk,nk*4));CK(cudaMalloc(&dv,nv*4));CK(cudaMalloc(&lse,(int64_t)RQ*H*4));CK(cudaMalloc(&delta,(int64_t)RQ*H*4));
  fill<<<1024,256>>>(q,nq,type,1,1.f);fill<<<1024,256>>>(k,nk,type,2,1.f);fill<<<1024,256>>>(v,nv,type,3,1.f);fill<<<1024,256>>>(o,no,type,4,1.f);
  CK(cudaMemset(lse,0xff,(int64_t)RQ*H*4));CK(cudaMemset(delta,0xff,(int64_t)RQ*H*4));
  std::vector<Row> qr,kr; std::vector<int> blindq; for(size_t s=0;s<p.docs.size();++s){ for(int i=0;i<p.docs[s].lq;++i){ qr.push_back({rowq[s]+i,i,rowk[s],p.docs[s].lq,p.docs[s].lk}); if(p.mask.visible(i,p.docs[s].lq,p.docs[s].lk).size()==0) blindq.push_back(rowq[s]+i);} 
    for(int i=0;i<p.docs[s].lk;++i) kr.push_back({rowk[s]+i,i,rowq[s],p.docs[s].lq,p.docs[s].lk}); }
  Row*dqr=up(qr),*dkr=up(kr); const float scale=1/sqrtf((float)D);
  Ref ref{q,k,v,o,lse,delta,H,KH,D,DV,scale,p.mask,type};
  if(qr.size()) set_lse<<<qr.size(),H>>>(ref,dqr,lse,delta,0,H,true);
  int*pq=up(padq),*pk=up(padk); nan_rows<<<padq.size(),128>>>(q,pq,padq.size(),H*D);nan_rows<<<padq.size(),128>>>(o,pq,padq.size(),H*DV);
  nan_rows<<<padk.size(),128>>>(k,pk,padk.size(),KH*D);nan_rows<<<padk.size(),128>>>(v,pk,padk.size(),KH*DV);
  if(blindq.size()){int*b=up(blindq); nan_rows<<<blindq.size(),128>>>(o,b,blindq.size(),H*DV);nan_rows<<<blindq.size(),128>>>(q,b,blindq.size(),H*D);}
  Lists l=key_lists(p,rowq,rowk); WorkItem*items=up(l.items); Segment*parts=up(l.partners); std::vector<int32_t> nn{(int32_t)l.items.size()}; int32_t*num=up(nn);
  unsigned*ws; CK(cudaMalloc(&ws,256)); CK(cudaMemset(ws,0xff,256));
  const int ot=acc==Accumulate::only?type:0, qt=alone?type:0;
  auto poison=[&]{ CK(cudaMemset(dq,alone?0xff:0,nq*4)); CK(cudaMemset(dk,acc==Accumulate::merge?0:0xff,nk*4)); CK(cudaMemset(dv,acc==Accumulate::merge?0:0xff,nv*4)); };
  poison();
  AttentionShape sh; sh.num_heads=H;sh.num_kv_heads=KH;sh.group_size=H/KH;sh.head_dim_qk=D;sh.head_dim_v=DV;sh.softmax_scale=scale;sh.type=type==1?ElementType::float16:ElementType::bfloat16;
  BackwardArguments a; a.shape=sh; a.q={q,(int64_t)H*D,D,RQ};a.k={k,(int64_t)KH*D,D,RK};a.v={v,(int64_t)KH*DV,DV,RK};a.dout={o,(int64_t)H*DV,DV,RQ};a.lse=lse;a.delta=delta;
  a.dq={dq,(int64_t)H*D,D,RQ};a.dk={dk,(int64_t)KH*D,D,RK};a.dv={dv,(int64_t)KH*DV,DV,RK};
  a.keys={items,parts,num,(int)l.items.size(),p.mask,true};a.deterministic=det;a.accumulate=acc;a.one_item_of_keys=alone;a.workspace=ws;
  CK(cudaDeviceSynchronize());
  CK(hopper::backward(a,nullptr)); CK(cudaDeviceSynchronize());
  // check
  { std::vector<Row> sq,sk; for(size_t i=0;i<qr.size();i+=stride_check) sq.push_back(qr[i]); for(size_t i=0;i<kr.size();i+=stride_check) sk.push_back(kr[i]);
    Row*dsq=up(sq),*dsk=up(sk); double*rq_,*rk_,*rv_; CK(cudaMalloc(&rq_,std::max<size_t>(1,sq.size())*H*128*8));CK(cudaMalloc(&rk_,std::max<size_t>(1,sk.size())*KH*128*8));CK(cudaMalloc(&rv_,std::max<size_t>(1,sk.size())*KH*128*8));
    if(sk.size()) ref_dkv<<<dim3(sk.size(),KH),128>>>(ref,dsk,rk_,rv_); if(sq.size()) ref_dq<<<dim3(sq.size(),H),128>>>(ref,dsq,rq_); CK(cudaDeviceSynchronize());
    std::vector<double> hq(sq.size()*H*128),hk(sk.size()*KH*128),hv(hk.size()); CK(cudaMemcpy(hq.data(),rq_,hq.size()*8,cudaMemcpyDeviceToHost));CK(cudaMemcpy(hk.data(),rk_,hk.size()*8,cudaMemcpyDeviceToHost));CK(cudaMemcpy(hv.data(),rv_,hv.size()*8,cudaMemcpyDeviceToHost));
    std::vector<char> gq(nq*4),gk(nk*4),gv(nv*4); CK(cudaMemcpy(gq.data(),dq,nq*4,cudaMemcpyDeviceToHost));CK(cudaMemcpy(gk.data(),dk,nk*4,cudaMemcpyDeviceToHost));CK(cudaMemcpy(gv.data(),dv,nv*4,cudaMemcpyDeviceToHost));
    auto cmp=[&](const char*n,const std::vector<Row>&rows,const std::vector<double>&want,const void*got,int t,int heads,int dim,bool q_side){ double num2=0,den=0,mx=0; int64_t nans=0,first=-1;
      for(size_t i=0;i<rows.size();++i){ 
        const Interval vis=q_side?p.mask.visible(rows[i].pos,rows[i].len_q,rows[i].len_k):p.mask.seeing(rows[i].pos,rows[i].len_q,rows[i].len_k); 
        if(vis.size()==0) continue;
        for(int h=0;h<heads;++h) for(int d=0;d<dim;++d){ double w=want[(i*heads+h)*128+d], g=rd(got,t,((int64_t)rows[i].row*heads+h)*dim+d); if(!std::isfinite(g)){ if(first<0)first=i; ++nans; continue;} num2+=(w-g)*(w-g);den+=w*w; mx=std::max(mx,std::abs(w-g)); } }
      const double e=den>0?sqrt(num2/den):0; const bool ok=nans==0&&e<8e-3; if(!ok)++bad; printf(" %s %.2e/%.1e%s",n,e,mx,ok?"":" BAD"); if(nans)printf("(nan %lld first %lld)",(long long)nans,(long long)first); };
    printf("%-22s t%d acc%d det%d alone%d:",p.name.c_str(),type,(int)acc,det,alone);
    if(!det) cmp("dq",sq,hq,gq.data(),qt,H,D,true); cmp("dk",sk,hk,gk.data(),ot,KH,D,false); cmp("dv",sk,hv,gv.data(),ot,KH,DV,false);
    // untouched padding of dk, dv (poison 0xff) and dq (0)
    int64_t touched=0; for(int r:padk) for(int i=0;i<KH*D;++i){ uint16_t x; memcpy(&x,gk.data()+((int64_t)r*KH*D+i)*(ot?2:4),2); if(acc!=Accumulate::merge&&x!=0xffff)++touched; }
    if(!alone&&!det) for(int r:padq) for(int i=0;i<H*D;++i){ float x; memcpy(&x,gq.data()+((int64_t)r*H*D+i)*4,4); if(x!=0)++touched; }
    if(touched){++bad; printf(" TOUCHED %lld",(long long)touched);} printf("\n"); fflush(stdout);
    cudaFree(dsq);cudaFree(dsk);cudaFree(rq_);cudaFree(rk_);cudaFree(rv_); }
  if(time){ double pairs=0; for(auto&d:p.docs) for(int i=0;i<d.lq;++i) pairs+=p.mask.visible(i,d.lq,d.lk).size();
    cudaEvent_t e0,e1; cudaEventCreate(&e0);cudaEventCreate(&e1); std::vector<float> ts; for(int i=0;i<13;++i){ cudaEventRecord(e0); CK(hopper::backward(a,nullptr)); cudaEventRecord(e1); CK(cudaEventSynchronize(e1)); float ms; cudaEventElapsedTime(&ms,e0,e1); if(i>=3)ts.push_back(ms);} std::sort(ts.begin(),ts.end());
    const double fl=2.5*4*D*pairs*H; printf("TIME %-22s %.3f ms (min %.3f) %.0f TFLOP/s; with 0.2 ms %.0f; items %zu\n",p.name.c_str(),ts[ts.size()/2],ts[0],fl/ts[ts.size()/2]*1e-9,fl/(ts[ts.size()/2]+.2)*1e-9,l.items.size()); fflush(stdout); }
  for(void*x:{q,k,v,o,dq,dk,dv,(void*)lse,(void*)delta,(void*)dqr,(void*)dkr,(void*)pq,(void*)pk,(void*)items,(void*)parts,(void*)num,(void*)ws}) cudaFree(x); }
std::vector<Doc> same(int n,int l){return std::vector<Doc>(n,{l,l});}
std::vector<Doc> longtail(){ std::mt19937 g(7); std::lognormal_distribution<double> d(6.6,1.2); std::vector<Doc> v; int left=32768; v.push_back({7980,7980}); left-=7980; while(left>0){int l=std::min({left,7980,std::max(1,(int)d(g))}); v.push_back({l,l}); left-=l;} return v; }
std::vector<Doc> ragged(int mean){ std::mt19937 g(9); std::vector<Doc> v; int left=32768; while(left>0){int l=std::min(left,std::max(1,(int)(-mean*log(((g()%100000)+1)/100001.)))); v.push_back({l,l}); left-=l;} return v; }
int main(int c,char**vv){ std::string what=c>1?vv[1]:"all";
  const Mask cs=Mask::causal(), full=Mask::full();
  std::vector<Doc> odd={{1,1},{63,63},{0,0},{64,64},{65,65},{127,127},{128,128},{129,129},{200,200},{257,257},{300,300},{513,513}};
  std::vector<Doc> cross={{100,300},{300,100},{1,200},{200,1},{0,50},{130,129},{333,77},{64,640},{640,64}};
  if(what=="one"){ run({"one tile full",{{64,128}},full,1,1,128},2,false); run({"one causal",{{128,128}},cs,1,1,128},2,false); run({"odd",odd,cs,2,1,128,3},2,false); printf("BAD %d\n",bad); return bad!=0; }
  if(what=="quick"){
   run({"16k x2 causal",same(2,16384),cs,16,16,128},2,true,Accumulate::only,false,false,3977);
   run({"1k x32 causal",same(32,1024),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"256 x128 causal",same(128,256),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   return 0; }
  if(what!="time"){
   for(int type:{2,1}){
    run({"odd causal",odd,cs,2,2,128,3},type,false); run({"odd full",odd,full,4,1,128,3},type,false);
    run({"cross causal br",cross,Mask::causal(Align::bottom_right),2,1,128,5},type,false);
    run({"cross causal tl",cross,cs,2,1,128,5},type,false);
    run({"odd window 70",odd,Mask::sliding_window(70,0),2,2,128,3},type,false);
    run({"cross window 33,17",cross,Mask::sliding_window(33,17,Align::bottom_right),2,2,128,3},type,false);
    run({"odd chunk 100",odd,Mask::chunked(100),2,2,128,3},type,false);
   }
   run({"split segs",odd,cs,2,1,128,3,50},2,false); run({"dim 96/128",odd,cs,3,3,96,3,0,128},2,false); run({"dim 128/72",odd,cs,3,3,128,3,0,72},2,false); run({"dim 40",odd,cs,3,1,40,3},2,false);
   run({"merge",odd,cs,2,1,128,3},2,false,Accumulate::merge); run({"start",odd,cs,2,1,128,3},2,false,Accumulate::start); run({"det",odd,cs,2,1,128,3},2,false,Accumulate::only,true);
   run({"alone",{{1,1},{63,63},{100,100},{128,128},{127,127},{64,64}},cs,4,2,128,3},2,false,Accumulate::only,false,true);
   run({"many",std::vector<Doc>(30,{700,700}),cs,4,2,128,1},2,false,Accumulate::only,false,false,7);
  }
  if(what!="check"){
   run({"16k x2 causal",same(2,16384),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"16k x2 full",same(2,16384),full,16,16,128},2,true,Accumulate::only,false,false,3977);
   run({"2k x16 causal",same(16,2048),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"1k x32 causal",same(32,1024),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"256 x128 causal",same(128,256),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"128 x256 alone",same(256,128),cs,16,16,128},2,true,Accumulate::only,false,true,977);
   run({"long tail",longtail(),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"long tail 64/8",longtail(),cs,64,8,128},2,true,Accumulate::only,false,false,977);
   run({"ragged 1k",ragged(1024),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"ragged 256",ragged(256),cs,16,16,128},2,true,Accumulate::only,false,false,977);
   run({"32k window 1024",same(1,32768),Mask::sliding_window(1024,0),16,16,128},2,true,Accumulate::only,false,false,977);
   run({"16k x2 causal det",same(2,16384),cs,16,16,128},2,true,Accumulate::only,true,false,3977);
  }
  printf("BAD %d\n",bad); return bad!=0; }
