"""Random 2-d problems: draw.py SEED COUNT DIMS -> numpy array rows N C H W K R S ph pw sh sw dh dw g (dims 2)"""
import random,sys
def size(r,most):
    return r.choice([1,2,4,7,8,14,16,28,32,56,64,112,128,224,256,512]) if r.random()<.4 else int(round(2**r.uniform(0,__import__('math').log2(most))))
CH=[1,3,4,8,16,24,32,40,48,64,80,96,112,128,160,192,240,256,320,384,480,512,640,768,1024,1280,2048]
def ch(r,most=2048):
    u=r.random()
    if u<.6: return r.choice(CH)
    if u<.85: return 8*max(1,int(round(2**r.uniform(0,8))))
    return max(1,int(round(2**r.uniform(0,11))))
def one(r,dims):
    while True:
        c,k=ch(r),ch(r)
        u=r.random(); g=1
        if u<.12: g=c; k=c*r.choice([1,1,1,1,2])
        elif u<.27:
            g=r.choice([2,3,4,8,16,32,64]); 
            if c%g or k%g: c=g*max(1,c//g); k=g*max(1,k//g)
        rank=2 if dims<3 else 3
        most={1:16384,2:1024,3:128}[dims]
        if r.random()<.75 or dims==1:
            s=size(r,most); img=[s]*rank
        else: img=[size(r,most) for _ in range(rank)]
        kk=r.choice([1,1,1,2,3,3,3,3,3,4,5,5,7,7,9,11]) if r.random()<.95 else r.randint(1,16)
        ker=[kk]*rank if r.random()<.85 else [r.choice([1,2,3,5,7]) for _ in range(rank)]
        if dims==3 and kk>7: continue
        u=r.random()
        st=[1]*rank if u<.6 else [2]*rank if u<.8 else [kk]*rank if u<.87 else [r.choice([1,2,3,4]) for _ in range(rank)]
        dl=[1]*rank if r.random()<.87 else [r.choice([2,2,3,4,6,12,18])]*rank
        u=r.random()
        pad=[d*(q-1)//2 for d,q in zip(dl,ker)] if u<.65 else [0]*rank if u<.85 else [min(q-1,r.choice([0,1,2,3])) for q in ker]
        if dims==1:
            img[0]=1;ker[0]=1;st[0]=1;dl[0]=1;pad[0]=0
        if any((i+2*p-d*(q-1)-1)//s+1<1 or i+2*p<d*(q-1)+1 for i,p,d,q,s in zip(img,pad,dl,ker,st)): continue
        n=r.choice([1,1,2,4,8,16,32,64,128,256,512]) if r.random()<.65 else int(round(2**r.uniform(0,9)))
        def prod(a):
            x=1
            for v in a:x*=v
            return x
        out=[(i+2*p-d*(q-1)-1)//s+1 for i,p,d,q,s in zip(img,pad,dl,ker,st)]
        # what fits on a card
        if n*c*prod(img)>2**31 or n*k*prod(out)>2**31 or k*c//g*prod(ker)>2**28: continue
        return (n,c,img,k,ker,pad,st,dl,g)
def line(p,pas,dt,nhwc):
    n,c,img,k,ker,pad,st,dl,g=p
    return " ".join(map(str,[pas,dt,nhwc,0,len(img),n,c,*img,k,*ker,*pad,*st,*dl,g]))
if __name__=="__main__":
    seed,count,dims=map(int,sys.argv[1:4])
    r=random.Random(seed)
    for _ in range(count):
        p=one(r,dims)
        for dt in (0,2,9):
            for h in (0,1):
                for pas in (0,1,2):
                    print(line(p,pas,dt,h))
